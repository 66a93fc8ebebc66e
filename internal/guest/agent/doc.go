// Package agent is PID 1 of a guest: it boots the machine, gives it its
// identity, freezes and measures it, and serves the host.
//
// It runs twice. Enter is stage 1, /init of the initramfs: it loads the modules,
// mounts the root filesystem and switches to it. Setup and Serve are stage 2,
// the same program from a place that packages of the guest cannot replace.
//
// Code and programs are run by guest/exec, files are served by agent/files,
// children are collected by guest/reap, the byte stream is guest/wire's. The
// host trusts nothing that comes from here; a root user of the guest can always
// break it.
//
// Start reading at Enter, then Setup, then Service.
package agent

// Paths in the guest. Home is the agent's own place, a small read-only tmpfs.
const (
	Home       = "/run/ramet"
	Program    = Home + "/ramet-agent"
	rootDevice = "/dev/vda"
	newRoot    = "/newroot"
	moduleList = "/modules.list"

	cgroupRoot = "/sys/fs/cgroup"
	// UserCgroup holds every process that is not the agent, in the two below it.
	UserCgroup = cgroupRoot + "/user"
	// MainCgroup is where processes are started.
	MainCgroup = UserCgroup + "/main"
	// SpareCgroup is where they are started while there is no room in MainCgroup.
	SpareCgroup = UserCgroup + "/spare"

	portName = "ramet.agent"
)

// StageVariable is set in the environment of stage 2.
const StageVariable = "RAMET_AGENT_STAGE"

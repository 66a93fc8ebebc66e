package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/config"
)

func checkPlatform(_ context.Context, h Host, _ config.Server) finding {
	if h.Arch != "amd64" {
		return finding{Fail, "this host is " + h.Arch + ", but the machines are x86-64", "use an x86-64 host"}
	}
	release, err := h.read("/proc/sys/kernel/osrelease")
	if err != nil {
		return finding{Warn, "the kernel's version cannot be read", ""}
	}
	name := "Linux"
	if osrel, err := h.read("/etc/os-release"); err == nil {
		for line := range strings.Lines(osrel) {
			if v, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
				name = strings.Trim(v, `"`)
			}
		}
	}
	return ok("%s, kernel %s", name, strings.TrimSpace(release))
}

// neededCapabilities are those that the server uses, by bit number.
var neededCapabilities = []struct {
	bit  uint
	name string
	why  string
}{
	{unix.CAP_CHOWN, "CAP_CHOWN", "give each machine its files"},
	{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "work on the files of machines"},
	{unix.CAP_KILL, "CAP_KILL", "end machines"},
	{unix.CAP_SETGID, "CAP_SETGID", "run each machine as its own user"},
	{unix.CAP_SETUID, "CAP_SETUID", "run each machine as its own user"},
	{unix.CAP_SYS_CHROOT, "CAP_SYS_CHROOT", "build templates"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "build templates (mounts)"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "read the memory of machines"},
}

func checkPrivileges(_ context.Context, h Host, _ config.Server) finding {
	if h.EUID != 0 {
		return finding{
			Fail, fmt.Sprintf("this is user %d, not root", h.EUID),
			"run the server and this check as root: it gives every machine a user of its own",
		}
	}
	status, err := h.read("/proc/self/status")
	if err != nil {
		return finding{Warn, "the capabilities cannot be read", ""}
	}
	var effective uint64
	for line := range strings.Lines(status) {
		if v, found := strings.CutPrefix(line, "CapEff:"); found {
			effective, err = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	if err != nil {
		return finding{Warn, "the capabilities cannot be read", ""}
	}
	var missing []string
	for _, c := range neededCapabilities {
		if effective&(1<<c.bit) == 0 {
			missing = append(missing, c.name+" (to "+c.why+")")
		}
	}
	if missing != nil {
		return finding{Fail, "root lacks " + strings.Join(missing, ", "), "give the container or service these capabilities"}
	}
	return ok("root, with every capability that is needed")
}

// checkUIDs looks at the range of user ids: a rootless container has few.
func checkUIDs(_ context.Context, h Host, _ config.Server) finding {
	m, err := h.read("/proc/self/uid_map")
	if err != nil {
		return finding{Warn, "the range of user ids cannot be read", ""}
	}
	var total uint64
	for line := range strings.Lines(m) {
		if f := strings.Fields(line); len(f) == 3 {
			n, _ := strconv.ParseUint(f[2], 10, 64)
			total += n
		}
	}
	if total < 1<<24 {
		return finding{
			Warn, fmt.Sprintf("only %d user ids exist here, and every machine wants one of its own", total),
			"run outside of a user namespace, or map more ids into it",
		}
	}
	return ok("every machine can have a user id of its own")
}

func checkCgroups(_ context.Context, h Host, _ config.Server) finding {
	controllers, err := h.read("/sys/fs/cgroup/cgroup.controllers")
	if err == nil {
		var missing []string
		have := strings.Fields(controllers)
		for _, want := range []string{"cpu", "memory", "pids"} {
			found := false
			for _, c := range have {
				found = found || c == want
			}
			if !found {
				missing = append(missing, want)
			}
		}
		if missing != nil {
			return finding{
				Warn, "cgroups v2 without " + strings.Join(missing, ", ") + "; " + onlyQEMU,
				"under systemd, set Delegate=yes for the service",
			}
		}
		return ok("cgroups v2: each machine has its limit of memory and processes, and its share of the processors")
	}
	var have, missing []string
	for _, c := range []string{"memory", "pids", "cpu"} {
		if h.exists("/sys/fs/cgroup/" + c + "/cgroup.procs") {
			have = append(have, c)
		} else {
			missing = append(missing, c)
		}
	}
	switch {
	case missing == nil:
		return ok("cgroups v1: each machine has its limit of memory and processes, and its share of the processors")
	case have != nil:
		return finding{
			Warn, "cgroups v1 without " + strings.Join(missing, ", ") + "; " + onlyQEMU,
			"mount the missing controllers below /sys/fs/cgroup, or cgroup2 on it",
		}
	}
	return finding{Warn, "no cgroups; " + onlyQEMU, "mount cgroup2 on /sys/fs/cgroup"}
}

// onlyQEMU is what limits a machine where cgroups do not.
const onlyQEMU = "in their place a machine is bounded by its own size alone: the guest's memory, a thread for each vCPU, and no new processes (QEMU's sandbox)"

func checkMemory(_ context.Context, h Host, _ config.Server) finding {
	info, err := h.read("/proc/meminfo")
	if err != nil {
		return finding{Warn, "the free memory cannot be read", ""}
	}
	kb := map[string]uint64{}
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) > 0 {
			kb[name], _ = strconv.ParseUint(f[0], 10, 64)
		}
	}
	free, total := kb["MemAvailable"]<<10, kb["MemTotal"]<<10
	what := fmt.Sprintf("%s of %s of memory are free", size(free), size(total))
	switch {
	case free < 1<<30:
		return finding{Fail, what, "a sandbox needs up to 1 GB, and building the template needs 1 GB"}
	case free < 3<<30:
		return finding{Warn, what + "; enough for one or two sandboxes", ""}
	}
	return ok("%s", what)
}

// size formats bytes for a sentence.
func size(b uint64) string {
	switch {
	case b >= 1<<30:
		return fmt.Sprintf("%.1f GB", float64(b)/(1<<30))
	default:
		return fmt.Sprintf("%d MB", b>>20)
	}
}

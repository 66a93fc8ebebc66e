package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"ramet.dev/ramet/internal/sandbox"
)

// cgroupRoot is where control groups are mounted on every current Linux.
const cgroupRoot = "/sys/fs/cgroup"

// Limits of a machine's cgroup. The memory limit is the guest's memory and
// room for QEMU itself and for what a guest may plug beyond its size; it is there
// to contain a broken QEMU, not the guest.
const (
	qemuOverheadMB = 768
	qemuMaxTasks   = 256
)

// cgroups puts each machine into a cgroup of its own, where the host lets us:
// version 2, or the version 1 controllers that are mounted. Without any,
// machines run as they are.
//
// The groups lie below the root, not in the server's own group: a machine
// outlives the server, and whoever manages the server's group (systemd) may
// clear or refuse one that still has members.
type cgroups struct {
	parents []cgroupParent
}

type cgroupParent struct {
	dir        string
	controller string // of version 1; "" is version 2
}

// findCgroups returns the groups below root, with name as the parent of all.
func findCgroups(root, name string) cgroups {
	var c cgroups
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		c.parents = []cgroupParent{{dir: filepath.Join(root, name)}}
		return c
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		dir := filepath.Join(root, controller)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			c.parents = append(c.parents, cgroupParent{filepath.Join(dir, name), controller})
		}
	}
	return c
}

func (p cgroupParent) group(uid int) string { return filepath.Join(p.dir, strconv.Itoa(uid)) }

// place moves a process into new groups named after its uid, which no other
// machine has. It returns what did not work; the machine runs all the same.
func (c cgroups) place(uid, pid int, shape sandbox.Shape) error {
	var errs []error
	for _, p := range c.parents {
		if err := p.enable(); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.MkdirAll(p.group(uid), 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		for file, value := range p.limits(shape) {
			errs = append(errs, p.set(uid, file, value))
		}
		errs = append(errs, os.WriteFile(filepath.Join(p.group(uid), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// enable makes the parent and, in version 2, hands the controllers down to
// it and to its children. A controller that is not there stays away.
func (p cgroupParent) enable() error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	if file, value := p.share(); file != "" {
		// A host that refuses leaves the machines with the share of one process.
		_ = os.WriteFile(filepath.Join(p.dir, file), []byte(value), 0)
	}
	if p.controller != "" {
		return nil
	}
	for _, dir := range []string{filepath.Dir(p.dir), p.dir} {
		for _, controller := range []string{"memory", "pids", "cpu"} {
			// Refused where the group has processes of its own, as in most containers.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
		}
	}
	return nil
}

// set writes a limit. One whose controller is not there is left out.
func (p cgroupParent) set(uid int, file, value string) error {
	f, err := os.OpenFile(filepath.Join(p.group(uid), file), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// limits are the files of a new group and their values.
func (p cgroupParent) limits(shape sandbox.Shape) map[string]string {
	all := map[string]string{}
	for _, limit := range []func() (string, string){
		func() (string, string) { return p.memory(shape.MemoryMB) },
		func() (string, string) { return p.weight(shape.VCPUs, false) },
		p.tasks,
	} {
		if file, value := limit(); file != "" {
			all[file] = value
		}
	}
	return all
}

func (p cgroupParent) memory(mb int) (file, value string) {
	value = strconv.FormatInt(int64(mb+qemuOverheadMB)<<20, 10)
	switch p.controller {
	case "memory":
		return "memory.limit_in_bytes", value
	case "":
		return "memory.max", value
	}
	return "", ""
}

func (p cgroupParent) tasks() (file, value string) {
	if p.controller == "pids" || p.controller == "" {
		return "pids.max", strconv.Itoa(qemuMaxTasks)
	}
	return "", ""
}

// weight is a machine's share of the CPUs: it grows with its own, and is a
// tenth of that in the background.
func (p cgroupParent) weight(vcpus int, background bool) (file, value string) {
	w := 100 * vcpus
	if background {
		w /= 10
	}
	switch p.controller {
	case "cpu":
		return "cpu.shares", strconv.Itoa(w * 1024 / 100)
	case "":
		return "cpu.weight", strconv.Itoa(w)
	}
	return "", ""
}

// share is what all machines together get of the CPUs when others want them
// too: as much as two busy processes for each CPU. The default is that of one process.
func (p cgroupParent) share() (file, value string) {
	switch p.controller {
	case "cpu":
		return "cpu.shares", strconv.Itoa(min(2*runtime.NumCPU()*1024, 262144))
	case "":
		return "cpu.weight", strconv.Itoa(min(2*runtime.NumCPU()*100, 10000))
	}
	return "", ""
}

// weigh changes a machine's share of the CPUs.
func (c cgroups) weigh(uid, vcpus int, background bool) error {
	return c.change(uid, func(p cgroupParent) (string, string) { return p.weight(vcpus, background) })
}

// allowMemory changes how much memory a machine may use, for a guest of mb MB.
func (c cgroups) allowMemory(uid, mb int) error {
	return c.change(uid, func(p cgroupParent) (string, string) { return p.memory(mb) })
}

func (c cgroups) change(uid int, limit func(cgroupParent) (file, value string)) error {
	var errs []error
	for _, p := range c.parents {
		if file, value := limit(p); file != "" {
			errs = append(errs, p.set(uid, file, value))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// remove deletes the groups of a machine; they must be empty.
func (c cgroups) remove(uid int) {
	for _, p := range c.parents {
		// One that is still in use stays behind empty; it holds nothing.
		_ = os.Remove(p.group(uid))
	}
}

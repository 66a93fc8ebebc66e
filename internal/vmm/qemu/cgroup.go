package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"ramet.dev/ramet/internal/sandbox"
)

// cgroupRoot is where control groups are mounted on every current Linux.
const cgroupRoot = "/sys/fs/cgroup"

// Limits of a machine's cgroup. The memory limit is the guest's memory and
// room for QEMU itself; it is there to contain a broken QEMU, not the guest.
const (
	qemuOverheadMB = 512
	qemuMaxTasks   = 256
)

// cgroups puts each machine into a cgroup of its own, where the host lets us:
// version 2 with delegated controllers, or the version 1 controllers that are
// mounted. Without any, machines run as they are.
type cgroups struct {
	parents []cgroupParent
	name    string
}

type cgroupParent struct {
	dir        string
	controller string // of version 1; "" is version 2
}

func findCgroups(name string) cgroups {
	c := cgroups{name: name}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		c.parents = []cgroupParent{{dir: filepath.Join(cgroupRoot, name)}}
		return c
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		dir := filepath.Join(cgroupRoot, controller)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			c.parents = append(c.parents, cgroupParent{filepath.Join(dir, name), controller})
		}
	}
	return c
}

// place moves a process into new groups named after its uid, which no other
// machine has. It returns
// what did not work; the machine runs all the same.
func (c cgroups) place(uid, pid int, shape sandbox.Shape) error {
	var errs []error
	for _, p := range c.parents {
		dir := filepath.Join(p.dir, strconv.Itoa(uid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		for file, value := range p.limits(shape) {
			// A limit whose controller is not there is left out.
			err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				errs = append(errs, err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

func (p cgroupParent) limits(shape sandbox.Shape) map[string]string {
	memory := strconv.FormatInt(int64(sandbox.MaxMemoryMB+qemuOverheadMB)<<20, 10)
	tasks := strconv.Itoa(qemuMaxTasks)
	weight := shape.VCPUs * 100
	switch p.controller {
	case "memory":
		return map[string]string{"memory.limit_in_bytes": memory}
	case "pids":
		return map[string]string{"pids.max": tasks}
	case "cpu":
		return map[string]string{"cpu.shares": strconv.Itoa(weight * 1024 / 100)}
	}
	return map[string]string{"memory.max": memory, "pids.max": tasks, "cpu.weight": strconv.Itoa(weight)}
}

// remove deletes the groups of a machine; they must be empty.
func (c cgroups) remove(uid int) {
	for _, p := range c.parents {
		// One that is still in use stays behind empty; it holds nothing.
		_ = os.Remove(filepath.Join(p.dir, strconv.Itoa(uid)))
	}
}

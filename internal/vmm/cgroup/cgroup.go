// Package cgroup puts machines into control groups of their own, where the host lets us. The
// drivers share it.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// Root is where control groups are mounted on every current Linux.
const Root = "/sys/fs/cgroup"

// Room is what a machine gets besides its guest's memory.
type Room struct {
	OverheadMB int // of memory, for the monitor itself
	MaxTasks   int // threads and processes of the host
}

// Groups puts each machine into a cgroup of its own, where the host lets us:
// version 2, or the version 1 controllers that are mounted. Without any,
// machines run as they are.
//
// The groups lie below the root, not in the server's own group: a machine
// outlives the server, and whoever manages the server's group (systemd) may
// clear or refuse one that still has members.
type Groups struct {
	room    Room
	parents []parent
}

type parent struct {
	dir        string
	controller string // of version 1; "" is version 2
}

// Find returns the groups below root, with name as the parent of all.
func Find(root, name string, room Room) Groups {
	c := Groups{room: room}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		c.parents = []parent{{dir: filepath.Join(root, name)}}
		return c
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		dir := filepath.Join(root, controller)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			c.parents = append(c.parents, parent{filepath.Join(dir, name), controller})
		}
	}
	return c
}

func (p parent) group(name string) string { return filepath.Join(p.dir, name) }

// Place moves processes into new groups with a name that no other machine has. It returns what did not work; the machine runs all the same.
func (c Groups) Place(name string, shape sandbox.Shape, pids ...int) error {
	var errs []error
	for _, p := range c.parents {
		if err := p.enable(); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := os.MkdirAll(p.group(name), 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		for file, value := range p.limits(shape, c.room) {
			errs = append(errs, p.set(name, file, value))
		}
		for _, pid := range pids {
			errs = append(errs, os.WriteFile(filepath.Join(p.group(name), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// enable makes the parent and, in version 2, hands the controllers down to
// it and to its children. A controller that is not there stays away.
func (p parent) enable() error {
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
func (p parent) set(name, file, value string) error {
	f, err := os.OpenFile(filepath.Join(p.group(name), file), os.O_WRONLY, 0)
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
func (p parent) limits(shape sandbox.Shape, room Room) map[string]string {
	all := map[string]string{}
	for _, limit := range []func() (string, string){
		func() (string, string) { return p.memory(shape.MemoryMB + room.OverheadMB) },
		func() (string, string) { return p.weight(shape.VCPUs, false) },
		func() (string, string) { return p.tasks(room.MaxTasks) },
	} {
		if file, value := limit(); file != "" {
			all[file] = value
		}
	}
	return all
}

func (p parent) memory(mb int) (file, value string) {
	value = strconv.FormatInt(int64(mb)<<20, 10)
	switch p.controller {
	case "memory":
		return "memory.limit_in_bytes", value
	case "":
		return "memory.max", value
	}
	return "", ""
}

func (p parent) tasks(most int) (file, value string) {
	if p.controller == "pids" || p.controller == "" {
		return "pids.max", strconv.Itoa(most)
	}
	return "", ""
}

// weight is a machine's share of the CPUs: it grows with its own, and is a
// tenth of that in the background.
func (p parent) weight(vcpus int, background bool) (file, value string) {
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
func (p parent) share() (file, value string) {
	switch p.controller {
	case "cpu":
		return "cpu.shares", strconv.Itoa(min(2*runtime.NumCPU()*1024, 262144))
	case "":
		return "cpu.weight", strconv.Itoa(min(2*runtime.NumCPU()*100, 10000))
	}
	return "", ""
}

// Weigh changes a machine's share of the CPUs.
func (c Groups) Weigh(name string, vcpus int, background bool) error {
	return c.change(name, func(p parent) (string, string) { return p.weight(vcpus, background) })
}

// AllowMemory changes how much memory a machine may use, for a guest of mb MB.
func (c Groups) AllowMemory(name string, mb int) error {
	return c.change(name, func(p parent) (string, string) { return p.memory(mb + c.room.OverheadMB) })
}

func (c Groups) change(name string, limit func(parent) (file, value string)) error {
	var errs []error
	for _, p := range c.parents {
		if file, value := limit(p); file != "" {
			errs = append(errs, p.set(name, file, value))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// Remove deletes the groups of a machine; they must be empty.
func (c Groups) Remove(name string) {
	for _, p := range c.parents {
		// One that is still in use stays behind empty; it holds nothing.
		_ = os.Remove(p.group(name))
	}
}

// clearEvery is how often Clear tries again, and clearTimeout how long.
const (
	clearEvery   = 2 * time.Millisecond
	clearTimeout = 5 * time.Second
)

// Clear is Remove for a name that is not used again. The kernel takes an ended process out of its
// groups a moment after it told of the end, so it waits for that.
func (c Groups) Clear(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	tick := time.NewTicker(clearEvery)
	defer tick.Stop()
	for _, p := range c.parents {
		for {
			err := os.Remove(p.group(name))
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, syscall.EBUSY) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("remove cgroup: %w", errors.Join(err, context.Cause(ctx)))
			}
		}
	}
	return nil
}

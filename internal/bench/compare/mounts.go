package compare

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// apart starts programs from a thread with a mount namespace of its own. There
// nothing is to be seen of cgroups: crun refuses hosts that have those of both
// kinds, even when it is told to use none. It also keeps what crun mounts to itself.
type apart struct {
	jobs  chan job
	ended chan struct{}
}

type job struct {
	cmd  *exec.Cmd
	done chan error
}

const cgroups = "/sys/fs/cgroup"

func newApart() (*apart, error) {
	a := &apart{jobs: make(chan job), ended: make(chan struct{})}
	ready := make(chan error, 1)
	go a.serve(ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return a, nil
}

// serve never gives its thread back, so that it ends with the goroutine.
func (a *apart) serve(ready chan<- error) {
	defer close(a.ended)
	runtime.LockOSThread()
	if err := ownMounts(); err != nil {
		ready <- err
		return
	}
	ready <- nil
	for j := range a.jobs {
		j.done <- j.cmd.Run() // a child inherits what its parent's thread sees
	}
}

func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", cgroups, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("hide %s: %w", cgroups, err)
	}
	return nil
}

// run runs a program to its end, which the program's own context bounds.
func (a *apart) run(cmd *exec.Cmd) error {
	j := job{cmd: cmd, done: make(chan error, 1)}
	a.jobs <- j
	return <-j.done
}

func (a *apart) close() error {
	close(a.jobs)
	<-a.ended
	return nil
}

package exec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/guest/reap"
)

// errTooMany is why a process cannot be started.
var errTooMany = errors.New("the sandbox has as many processes as it can have; end some of them or delete the sandbox")

// What a run that was started in the spare group finds first on its stderr. A fork
// bomb makes processes faster than they can be ended one by one.
const (
	tasksNotice  = "[ramet] the sandbox has as many processes as it can have, and this runs beside them; "
	memoryNotice = "[ramet] the sandbox's memory is full, and this runs beside what holds it; "
	howToEnd     = "to end all of them: echo 1 > %s/cgroup.kill\n"
)

// What the main group must have free for a process to be started in it, once it
// has been full: bytes, and processes.
const (
	spareMemory = 48 << 20
	spareTasks  = 16
)

// startInCgroup starts a command inside the user cgroup: in the spare group when
// the main one has no room for it, with a notice that says so.
func (s *Service) startInCgroup(cmd *exec.Cmd) (_ *reap.Process, notice string, err error) {
	if s.cfg.Cgroup == "" {
		p, err := s.cfg.Reaper.Start(cmd)
		return p, "", err
	}
	if s.cfg.SpareCgroup == "" {
		p, err := s.startIn(cmd, s.cfg.MainCgroup)
		return p, "", err
	}
	switch {
	case count(s.cfg.MainCgroup, "pids.events", "max") > 0 && !tasksLeft(s.cfg.MainCgroup):
		notice = tasksNotice
	case s.oom.read() > 0 && s.memoryFree() < spareMemory:
		notice = memoryNotice
	default:
		again := copyOf(cmd)
		p, err := s.startIn(cmd, s.cfg.MainCgroup)
		if !errors.Is(err, unix.EAGAIN) {
			return p, "", err
		}
		cmd, notice = again, tasksNotice
	}
	p, err := s.startIn(cmd, s.cfg.SpareCgroup)
	if errors.Is(err, unix.EAGAIN) {
		err = fmt.Errorf("%w: %w", errTooMany, err)
	}
	return p, notice + fmt.Sprintf(howToEnd, s.cfg.MainCgroup), err
}

// copyOf copies a command that has not been started: each can be started once.
func copyOf(cmd *exec.Cmd) *exec.Cmd {
	c := *cmd
	attr := *cmd.SysProcAttr
	c.SysProcAttr = &attr
	return &c
}

// startInGroup starts a command inside a cgroup. Where the kernel cannot create a
// process in one, it is moved right after.
func (s *Service) startInGroup(cmd *exec.Cmd, group string) (*reap.Process, error) {
	dir, err := os.Open(group)
	if err != nil {
		return nil, fmt.Errorf("open user cgroup: %w", err)
	}
	defer dir.Close()
	again := copyOf(cmd)
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	p, err := s.cfg.Reaper.Start(cmd)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBADF) &&
		!errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EBUSY) {
		return p, err
	}
	p, err = s.cfg.Reaper.Start(again)
	if err != nil {
		return nil, err
	}
	procs := filepath.Join(group, "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(p.Pid)), 0); err != nil {
		s.log.Warn("process is outside the user cgroup", "pid", p.Pid, "error", err)
	}
	return p, nil
}

// count returns a number of a cgroup's file of "name value" lines, or 0.
func count(group, file, name string) uint64 {
	return oomCounter{filepath.Join(group, file), name}.read()
}

// tasksLeft says whether a group may have some more processes.
func tasksLeft(group string) bool {
	limit, err := number(group, "pids.max")
	if err != nil {
		return true // "max"
	}
	current, err := number(group, "pids.current")
	return err != nil || current+spareTasks <= limit
}

// memoryFree returns how much memory the main group can still get, in bytes: what is
// below its limit and what the kernel can take back from it. Where there is no limit
// it is enough. gVisor tells only what the machine has.
func (s *Service) memoryFree() int64 {
	group := s.cfg.MainCgroup
	limit, err := number(group, "memory.max")
	if err != nil {
		return spareMemory
	}
	if _, err := os.Stat(filepath.Join(group, "memory.stat")); err != nil {
		available, err := memoryAvailable(s.cfg.Meminfo)
		if err != nil {
			return spareMemory
		}
		return available - spareMemory
	}
	for _, name := range []string{"anon", "shmem", "kernel"} { // what cannot be written anywhere
		limit -= int64(count(group, "memory.stat", name))
	}
	return limit + int64(count(group, "memory.stat", "slab_reclaimable"))
}

func number(group, file string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(group, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}

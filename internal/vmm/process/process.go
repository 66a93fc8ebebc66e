// Package process looks at processes of the host and ends them: by pid and start
// time, or by a descriptor, never by a pid alone. The drivers share it.
package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is what we need of /proc/PID/stat.
type Stat struct {
	State     byte
	CPU       time.Duration // user and system
	StartTime uint64        // clock ticks since boot; with the pid it names a process
}

func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(b)
}

func ParseStat(b []byte) (Stat, error) {
	// The second field is the command in parentheses and may hold anything.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, errors.New("bad process status")
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, errors.New("bad process status")
	}
	var n [3]uint64
	for k, field := range []int{11, 12, 19} {
		v, err := strconv.ParseUint(f[field], 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("bad process status: %w", err)
		}
		n[k] = v
	}
	// USER_HZ is 100 on every Linux that we run on.
	return Stat{State: f[0][0], CPU: time.Duration(n[0]+n[1]) * 10 * time.Millisecond, StartTime: n[2]}, nil
}

// BootID names this boot of the host; start times mean nothing across it.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// OfUID returns the processes that run under a uid. One that has ended
// but was not reaped by its parent, which may never do it, does not count.
func OfUID(uid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid && !HasEnded(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// HasEnded says whether the process is gone or was not reaped yet. The state in
// /proc would not do: it is that of the first thread only.
func HasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	return Exited(fd)
}

// Open returns a descriptor of a process that the runtime's poller can
// wait for: it becomes readable when the process ends.
func Open(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(pid)), nil
}

// Wait blocks until the process has ended or the file is closed.
func Wait(f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool { return Exited(int(fd)) })
}

// Exited says whether the process of a pidfd has ended.
func Exited(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n > 0 && p[0].Revents != 0
	}
}

// Signal sends sig; a process that has ended is no error.
func Signal(f *os.File, sig unix.Signal) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.PidfdSendSignal(int(fd), sig, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(serr, unix.ESRCH) {
		return nil
	}
	return serr
}

// WaitContext runs wait and returns when it does, or when the context ends;
// then it calls stop, which must make wait return.
func WaitContext(ctx context.Context, wait func() error, stop func()) error {
	type outcome struct{ err error }
	done := make(chan outcome, 1)
	go func() { done <- outcome{wait()} }()
	select {
	case o := <-done:
		return o.err
	case <-ctx.Done():
		stop()
		<-done
		return context.Cause(ctx)
	}
}

// PSS reads a process's proportional set size, in bytes.
func PSS(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if v, ok := strings.CutPrefix(s.Text(), "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb << 10, err
		}
	}
	if err := s.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("process %d has no set size", pid)
}

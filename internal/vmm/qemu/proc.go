package qemu

import (
	"bytes"
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

// procStat is what we need of /proc/PID/stat.
type procStat struct {
	State     byte
	CPU       time.Duration // user and system
	StartTime uint64        // clock ticks since boot; with the pid it names a process
}

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (procStat, error) {
	// The second field is the command in parentheses and may hold anything.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, errors.New("bad process status")
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return procStat{}, errors.New("bad process status")
	}
	var n [3]uint64
	for k, field := range []int{11, 12, 19} {
		v, err := strconv.ParseUint(f[field], 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("bad process status: %w", err)
		}
		n[k] = v
	}
	// USER_HZ is 100 on every Linux that we run on.
	return procStat{State: f[0][0], CPU: time.Duration(n[0]+n[1]) * 10 * time.Millisecond, StartTime: n[2]}, nil
}

// bootID names this boot of the host; start times mean nothing across it.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// processesOf returns the processes that run under a uid. One that has ended
// but was not reaped by its parent, which may never do it, does not count.
func processesOf(uid int) ([]int, error) {
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
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid && !hasEnded(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// hasEnded says whether the process is gone or was not reaped yet. The state in
// /proc would not do: it is that of the first thread only.
func hasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	return pidfdExited(fd)
}

// openPidfd returns a descriptor of a process that the runtime's poller can
// wait for: it becomes readable when the process ends.
func openPidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(pid)), nil
}

// waitPidfd blocks until the process has ended or the file is closed.
func waitPidfd(f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool { return pidfdExited(int(fd)) })
}

// pidfdExited says whether the process of a pidfd has ended.
func pidfdExited(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n > 0 && p[0].Revents != 0
	}
}

// signalPidfd sends sig; a process that has ended is no error.
func signalPidfd(f *os.File, sig unix.Signal) error {
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

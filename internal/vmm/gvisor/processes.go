package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm/process"
)

// killSandbox ends every process of the sandbox in dir, also those that a record does not
// know: a server may end between a start and its record.
func killSandbox(ctx context.Context, dir string) error {
	for {
		pids, err := processesOf(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := killProcess(ctx, pid, dir); err != nil {
				return err
			}
		}
	}
}

func killProcess(ctx context.Context, pid int, dir string) error {
	f, err := process.Open(pid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	// The pid may have been reused between the listing and the opening.
	if !isOf(pid, dir) {
		return nil
	}
	if err := process.Signal(f, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return process.WaitContext(ctx, func() error { return process.Wait(f) }, func() { f.Close() })
}

// processesOf returns the processes of the sandbox in dir: the sentry, those in which it runs the
// guest's code, and runsc's commands. All have the sandbox's own state directory among
// their arguments, which no guest can change.
func processesOf(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && isOf(pid, dir) && !process.HasEnded(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isOf says whether a process belongs to the sandbox in dir.
func isOf(pid int, dir string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false // it has just ended
	}
	args := bytes.Split(b, []byte{0})
	want := []byte("--root=" + filepath.Join(dir, stateDir))
	for _, a := range args[1:] {
		if bytes.Equal(a, want) {
			return true
		}
	}
	return false
}

// Stats implements vmm.Machine. OwnPages counts the file that holds all of the guest's memory.
func (m *Machine) Stats() (sandbox.MachineStats, error) {
	if err := m.Err(); err != nil {
		return sandbox.MachineStats{}, err
	}
	s, err := m.stats()
	if err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	return s, nil
}

func (m *Machine) stats() (s sandbox.MachineStats, err error) {
	pids, err := m.family()
	if err != nil {
		return s, err
	}
	for _, pid := range pids {
		st, err := process.ReadStat(pid)
		if err != nil && (pid == m.pid || !process.HasEnded(pid)) {
			return s, err
		}
		s.CPUTime += st.CPU
	}
	// Those in which the guest's threads run share the address space of the guest's process.
	if s.PSSBytes, err = process.SumPSS(pids); err != nil {
		return s, err
	}
	memory, err := m.sizeOf("/memfd:runsc-memory")
	if err != nil {
		return s, err
	}
	s.OwnPages = memory / snapshot.PageSize
	s.DiskBytes, err = m.sizeOf(filepath.Join(m.dir, storeDir) + "/")
	return s, err
}

// family returns the sentry's pid and those of all its descendants.
func (m *Machine) family() ([]int, error) {
	pids := []int{m.pid}
	for i := 0; i < len(pids); i++ {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pids[i]))
		if err != nil {
			if i > 0 && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return nil, err
		}
		for _, t := range threads {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pids[i], t.Name()))
			if err != nil {
				continue // it has just ended
			}
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids, nil
}

// sizeOf returns what the sentry's file whose name begins so takes on its medium, in bytes.
func (m *Machine) sizeOf(prefix string) (int64, error) {
	dir := fmt.Sprintf("/proc/%d/fd", m.pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || !strings.HasPrefix(name, prefix) {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		return info.Sys().(*syscall.Stat_t).Blocks * 512, nil
	}
	return 0, fmt.Errorf("the sandbox has no file %s", prefix)
}

// backgroundNice is the priority of machines that give way to others.
const backgroundNice = 10

// SetBackground implements vmm.Machine. It sets all threads: new ones are like those that make them.
func (m *Machine) SetBackground(on bool) error {
	nice := 0
	if on {
		nice = backgroundNice
	}
	pids, err := m.family()
	if err != nil {
		return fmt.Errorf("set the machine's priority: %w", err)
	}
	for _, pid := range pids {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set the machine's priority: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("set the machine's priority: %w", err)
			}
		}
	}
	m.mu.Lock()
	vcpus := m.rec.VCPUs
	m.mu.Unlock()
	if err := m.d.cgroups.Weigh(string(m.id), vcpus, on); err != nil {
		m.log.Debug("the machine's cgroup keeps its weight", "err", err)
	}
	return nil
}

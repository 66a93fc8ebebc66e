package qemu

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
)

// Stats implements vmm.Machine. OwnPages counts the boot memory only: what is
// plugged is never shared.
func (m *Machine) Stats() (sandbox.MachineStats, error) {
	if err := m.Err(); err != nil {
		return sandbox.MachineStats{}, err
	}
	var s sandbox.MachineStats
	st, err := readStat(m.pid)
	if err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	s.CPUTime = st.CPU
	if s.PSSBytes, err = pss(m.pid); err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	boot, err := m.bootRange()
	if err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	err = ownRuns(m.pid, boot, snapshot.MaxRun, func(_, size uint64) error {
		s.OwnPages += int64(size / snapshot.PageSize)
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	m.mu.Lock()
	top := m.rec.Layers[len(m.rec.Layers)-1].Name
	m.mu.Unlock()
	info, err := os.Stat(filepath.Join(m.dir, top))
	if err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	s.DiskBytes = info.Sys().(*syscall.Stat_t).Blocks * 512
	return s, nil
}

// pss reads a process's proportional set size, in bytes.
func pss(pid int) (int64, error) {
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

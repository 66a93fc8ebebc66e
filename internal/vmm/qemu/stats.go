package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"

	"ramet.dev/ramet/internal/vmm/process"
)

// Stats implements vmm.Machine. OwnPages counts the boot memory only: what is
// plugged is never shared.
func (m *Machine) Stats() (sandbox.MachineStats, error) {
	if err := m.Err(); err != nil {
		return sandbox.MachineStats{}, err
	}
	var s sandbox.MachineStats
	st, err := process.ReadStat(m.pid)
	if err != nil {
		return s, fmt.Errorf("machine statistics: %w", err)
	}
	s.CPUTime = st.CPU
	if s.PSSBytes, err = process.PSS(m.pid); err != nil {
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

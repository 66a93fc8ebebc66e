// Package machinefile keeps what a driver says of a machine in its instance directory, so that a later
// process can take the machine over, or end it. Each driver has a record of its own; what all of them say is
// Owner and Process.
package machinefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ramet.dev/ramet/internal/vmm/process"
)

// Name is the file's. The Debian package knows it too.
const Name = "machine.json"

// Owner names the driver. It is embedded in a driver's record.
type Owner struct {
	Driver string `json:"driver,omitempty"` // earlier servers had one driver, QEMU, and did not name it
}

// Process names the machine's process, of one boot of the host. It is embedded in a driver's record.
type Process struct {
	PID       int    `json:"pid,omitempty"` // 0: not started yet
	StartTime uint64 `json:"start_time,omitempty"`
	BootID    string `json:"boot_id,omitempty"`
}

// IsGone says that there is no process, or none that can still run.
func (p Process) IsGone() (bool, error) {
	if p.PID == 0 {
		return true, nil
	}
	boot, err := process.BootID()
	if err != nil {
		return false, err
	}
	if boot != p.BootID {
		return true, nil
	}
	st, err := process.ReadStat(p.PID)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", p.PID, err)
	}
	return st.StartTime != p.StartTime || st.State == 'Z', nil
}

// Read reads the record in dir into r, a pointer. Its error wraps fs.ErrNotExist where there is none.
func Read(dir string, r any) error {
	b, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil {
		return fmt.Errorf("read machine record: %w", err)
	}
	if err := json.Unmarshal(b, r); err != nil {
		return fmt.Errorf("read machine record in %s: %w", dir, err)
	}
	return nil
}

// Write replaces the record in dir.
func Write(dir string, r any) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	// A record that a power cut loses belongs to a machine that it ended too,
	// so it is renamed into place but not synced.
	path := filepath.Join(dir, Name)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	return nil
}

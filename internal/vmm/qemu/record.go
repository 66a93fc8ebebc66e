package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"

	"ramet.dev/ramet/internal/vmm/process"
)

// The files of an instance directory. The directory and all in it but the
// disk layers belong to root; QEMU reaches nothing here by path.
const (
	recordName  = "machine.json"
	qmpName     = "qmp.sock"
	agentName   = "agent.sock"
	networkName = "net.sock"
	layerPrefix = "disk"
	layerSuffix = ".qcow2"
)

// record is what a later process needs to take the machine over, or to clean
// up after it. It is written before the process starts and again after.
type record struct {
	Driver    string             `json:"driver,omitempty"` // earlier servers had one driver, and did not name it
	Instance  sandbox.InstanceID `json:"instance"`
	CreatedAt time.Time          `json:"created_at"`
	UID       int                `json:"uid"`
	PID       int                `json:"pid,omitempty"` // 0: not started yet
	StartTime uint64             `json:"start_time,omitempty"`
	BootID    string             `json:"boot_id,omitempty"`

	Accel       string `json:"accel"`
	CPUModel    string `json:"cpu_model"`
	QEMUVersion string `json:"qemu_version"`
	VCPUs       int    `json:"vcpus"`
	DiskMB      int    `json:"disk_mb"`
	// BootMB is the boot memory; 0 in records of the first version: firstBootMB.
	BootMB int `json:"boot_mb,omitempty"`
	// PlugMB is the most that was ever asked of virtio-mem: where its memory can be.
	PlugMB int  `json:"plug_mb"`
	Golden bool `json:"golden,omitempty"`
	// BaseMemory is the checksum of the golden memory that the machine maps, or
	// empty when it started from nothing; BaseDir is that golden's directory.
	BaseMemory string `json:"base_memory,omitempty"`
	BaseDir    string `json:"base_dir,omitempty"`
	// Layers are the machine's disk layers above the image, lowest first. The last one
	// is writable. Size and checksum are known of layers that came from the disk.
	Layers []snapshot.File `json:"layers"`
	// SharedLayers is how many of the lowest belong to the golden snapshot.
	SharedLayers int `json:"shared_layers,omitempty"`
}

func (r record) bootMB() int { return bootMBOr(r.BootMB) }

func bootMBOr(mb int) int {
	if mb == 0 {
		return firstBootMB
	}
	return mb
}

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return r, fmt.Errorf("read machine record: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("read machine record in %s: %w", dir, err)
	}
	return r, nil
}

func (r record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	// A record that a power cut loses belongs to a machine that it ended too,
	// so it is renamed into place but not synced.
	path := filepath.Join(dir, recordName)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write machine record: %w", err)
	}
	return nil
}

// isGone says that dir has no record, or none of a process that can still run.
func (r record) isGone() (bool, error) {
	if r.PID == 0 {
		return true, nil
	}
	boot, err := process.BootID()
	if err != nil {
		return false, err
	}
	if boot != r.BootID {
		return true, nil
	}
	st, err := process.ReadStat(r.PID)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at process %d: %w", r.PID, err)
	}
	return st.StartTime != r.StartTime || st.State == 'Z', nil
}

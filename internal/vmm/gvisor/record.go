package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/process"
)

// The files of an instance directory, besides those of package console. All belong to root;
// the sandbox reaches none by its name.
const (
	recordName = "machine.json"
	toGuest    = "agent-in.fifo"  // the agent's standard input
	fromGuest  = "agent-out.fifo" // its standard output
	stateDir   = "runsc"          // what runsc keeps, and the control socket
	bundleDir  = "bundle"         // the sandbox's description
	storeDir   = "store"          // where the writable layer's file is, without a name
	linksDir   = "links"          // names for the files of a snapshot while it is restored
	logName    = "runsc.log"      // of the last command of runsc
)

// record is what a later process needs to take the machine over. It is written when the sandbox is
// made, and whenever it changes.
type record struct {
	Driver    string             `json:"driver"`
	Instance  sandbox.InstanceID `json:"instance"`
	CreatedAt time.Time          `json:"created_at"`
	Version   string             `json:"version"` // of runsc
	PID       int                `json:"pid"`
	StartTime uint64             `json:"start_time,omitempty"`
	BootID    string             `json:"boot_id,omitempty"`
	Started   bool               `json:"started,omitempty"` // it was resumed once
	VCPUs     int                `json:"vcpus"`
	MemoryMB  int                `json:"memory_mb"`
	DiskMB    int                `json:"disk_mb"`
	Golden    bool               `json:"golden,omitempty"`
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

// isGone says that the record is of no process that can still run.
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

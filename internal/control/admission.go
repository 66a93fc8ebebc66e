package control

import (
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/internal/store"
)

// Admission says what of the host may be promised to sandboxes. The rule:
//
//   - Memory: each sandbox is promised its memory_mb and OverheadMB for its machine's own
//     process. The sum stays within (host memory − MemoryReserveMB) × MemoryOvercommit.
//   - Disk: each sandbox is promised its whole disk_mb, however little it has written. The sum
//     stays within (free space + what sandboxes have written − DiskReserveMB) × DiskOvercommit.
//     What guests write moves from the first term to the second, so the bound does not move
//     with it; what others write on the same filesystem lowers it.
//
// The sums are over the records of all projects. Nothing is promised twice while
// the factors are 1.
type Admission struct {
	// Memory, when set, returns the host's memory that there is to promise, before the reserve.
	Memory func() (mb int, err error)
	// Disk, when set, measures the filesystem of the data directory: what is
	// free, and what the writable layers of all machines take.
	Disk func() (freeMB, writtenMB int, err error)

	MemoryReserveMB, DiskReserveMB int
	// OverheadMB is what a machine's process needs besides its guest's memory.
	OverheadMB int
	// Factors by which more is promised than is there. Zero counts as 1.
	MemoryOvercommit, DiskOvercommit float64
}

// diskFresh is how long a measurement of the disk is good for: a burst of
// creates makes one.
const diskFresh = time.Second

// hostRoom keeps the last measurement of the disk.
type hostRoom struct {
	cfg Admission

	mu     sync.Mutex
	at     time.Time // guarded by mu
	diskMB int       // guarded by mu; free and written
}

// memoryMB returns how much memory may be promised, 0 for no limit.
func (h *hostRoom) memoryMB() (int, error) {
	if h.cfg.Memory == nil {
		return 0, nil
	}
	mb, err := h.cfg.Memory()
	if err != nil {
		return 0, fmt.Errorf("measure the host's memory: %w", err)
	}
	return max(1, int(float64(mb-h.cfg.MemoryReserveMB)*factor(h.cfg.MemoryOvercommit))), nil
}

// disk returns how much disk may be promised, 0 for no limit.
func (h *hostRoom) disk() (int, error) {
	if h.cfg.Disk == nil {
		return 0, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() || time.Since(h.at) > diskFresh {
		free, written, err := h.cfg.Disk()
		if err != nil {
			return 0, fmt.Errorf("measure the disk: %w", err)
		}
		h.at, h.diskMB = time.Now(), free+written
	}
	return max(1, int(float64(h.diskMB-h.cfg.DiskReserveMB)*factor(h.cfg.DiskOvercommit))), nil
}

func factor(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}

// limits returns what the next create must stay within.
func (c *Control) limits() (store.Limits, error) {
	l := store.Limits{Defaults: c.cfg.Quota}
	var err error
	if l.Node.MemoryMB, err = c.room.memoryMB(); err != nil {
		return l, err
	}
	if l.Node.DiskMB, err = c.room.disk(); err != nil {
		return l, err
	}
	l.OverheadMB = c.cfg.Admission.OverheadMB
	return l, nil
}

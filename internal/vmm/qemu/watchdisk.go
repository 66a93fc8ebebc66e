package qemu

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/vmm/qemu/qmp"
)

// A full host disk stops the machine at the write that failed. It goes on,
// with that write repeated, once there is room again.
const (
	roomNeeded   = 256 << 20 // bytes
	roomInterval = 2 * time.Second
)

// watchDisk handles writes that failed for want of space, until the machine ends.
func (m *Machine) watchDisk(events *qmp.Subscription) {
	defer events.Close()
	for {
		e, err := events.Next(m.life)
		if err != nil {
			return
		}
		var d struct {
			NoSpace bool   `json:"nospace"`
			Reason  string `json:"reason"`
			Action  string `json:"action"`
		}
		if json.Unmarshal(e.Data, &d) != nil || d.Action != "stop" {
			continue
		}
		m.log.log.Error("the host's disk is full; the machine waits for room", "instance", m.log.instance, "reason", d.Reason)
		if !m.awaitRoom(m.life) {
			return
		}
		m.mu.Lock()
		running := m.running
		m.mu.Unlock()
		if !running { // paused by its owner meanwhile
			continue
		}
		ctx, cancel := context.WithTimeout(m.life, connectTimeout)
		if err := m.qmp.Run(ctx, "cont", nil, nil); err != nil {
			m.log.warn("continue after the host's disk was full", err)
		}
		cancel()
	}
}

// awaitRoom looks at the filesystem from time to time: nothing tells us when
// somebody makes room.
func (m *Machine) awaitRoom(ctx context.Context) bool {
	tick := time.NewTicker(roomInterval)
	defer tick.Stop()
	for {
		var st unix.Statfs_t
		if unix.Statfs(m.dir, &st) == nil && st.Bavail*uint64(st.Bsize) >= roomNeeded {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

package qemu

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// plugged is the virtio-mem device as QEMU reports it, in bytes.
type plugged struct {
	Size      int64  `json:"size"`
	Requested int64  `json:"requested-size"`
	Address   uint64 `json:"memaddr"`
}

func (m *Machine) queryPlugged(ctx context.Context) (plugged, error) {
	var devices []struct {
		Type string  `json:"type"`
		Data plugged `json:"data"`
	}
	if err := m.run(ctx, "query-memory-devices", nil, &devices); err != nil {
		return plugged{}, err
	}
	for _, d := range devices {
		if d.Type == "virtio-mem" {
			return d.Data, nil
		}
	}
	return plugged{}, errors.New("the machine has no virtio-mem device")
}

// plugPoll is how often a growing machine is asked how far it is. A question costs QEMU microseconds.
const plugPoll = 4 * time.Millisecond

// ResizeMemory asks the guest to have mb MB in all and waits until it has.
// Sizes up to what it has are no error and change nothing.
func (m *Machine) ResizeMemory(ctx context.Context, mb int) error {
	if mb > sandbox.MaxMemoryMB {
		return sandbox.Errorf(sandbox.Invalid, "memory_too_large", "a machine can have at most %d MB", sandbox.MaxMemoryMB)
	}
	m.mu.Lock()
	uid, bootMB := m.rec.UID, m.rec.bootMB()
	m.mu.Unlock()
	want := int64(mb-bootMB) / plugBlockMB * plugBlockMB << 20
	if want <= 0 {
		return nil
	}
	now, err := m.queryPlugged(ctx)
	if err != nil || now.Size >= want {
		return err
	}
	if err := m.updateRecord(func(r *record) { r.PlugMB = max(r.PlugMB, int(want>>20)) }); err != nil {
		return err
	}
	if err := m.d.cgroups.AllowMemory(strconv.Itoa(uid), mb); err != nil {
		m.log.warn("raise the memory limit", err)
	}
	if err := m.run(ctx, "qom-set", map[string]any{"path": "/machine/peripheral/" + plugDeviceID, "property": "requested-size", "value": want}, nil); err != nil {
		return err
	}
	// QEMU tells of progress by MEMORY_DEVICE_SIZE_CHANGE, but sends that event
	// once a second at most, which would be most of the wait. So it is asked.
	tick := time.NewTicker(plugPoll)
	defer tick.Stop()
	for now.Size < want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return m.explain(ctx, fmt.Errorf("the guest took %d of %d MB: %w", int64(bootMB)+now.Size>>20, mb, context.Cause(ctx)))
		}
		if now, err = m.queryPlugged(ctx); err != nil {
			return m.explain(ctx, err)
		}
	}
	return nil
}

// ResizeDisk grows the root disk to mb MB. A smaller size is refused by nobody
// but changes nothing.
func (m *Machine) ResizeDisk(ctx context.Context, mb int) error {
	if mb > sandbox.MaxDiskMB {
		return sandbox.Errorf(sandbox.Invalid, "disk_too_large", "a disk can have at most %d MB", sandbox.MaxDiskMB)
	}
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	if mb <= rec.DiskMB {
		return nil
	}
	if err := m.run(ctx, "block_resize", map[string]any{"node-name": rec.topNode(), "size": int64(mb) << 20}, nil); err != nil {
		return err
	}
	return m.updateRecord(func(r *record) { r.DiskMB = mb })
}

// plugRange is the part of the plugged memory that can hold something. QEMU
// lets a guest plug blocks a little above the size that is asked for (256 MB in 7.2).
func plugRange(all memRange, plugMB int) memRange {
	const slackMB = 1024
	if plugMB == 0 {
		return memRange{start: all.start}
	}
	return memRange{all.start, min(uint64(plugMB+slackMB)<<20, all.size)}
}

// updateRecord changes the machine's record, here and on disk.
func (m *Machine) updateRecord(change func(*record)) error {
	m.mu.Lock()
	change(&m.rec)
	rec := m.rec
	m.mu.Unlock()
	return machinefile.Write(m.dir, rec)
}

// memoryRegions returns where the boot and the plugged memory lie in the process.
func (m *Machine) memoryRegions(ctx context.Context) (boot, plug memRange, err error) {
	if boot, err = m.bootRange(); err != nil {
		return boot, plug, err
	}
	p, err := m.queryPlugged(ctx)
	if err != nil {
		return boot, plug, err
	}
	var out string
	cmd := map[string]any{"command-line": fmt.Sprintf("gpa2hva %#x", p.Address)}
	if err := m.run(ctx, "human-monitor-command", cmd, &out); err != nil {
		return boot, plug, err
	}
	start, err := parseHVA(out)
	m.mu.Lock()
	defer m.mu.Unlock()
	return boot, memRange{start, uint64(plugMemoryMB(m.rec.bootMB())) << 20}, err
}

// parseHVA parses "Host virtual address for 0x… (vmem0) is 0x…".
func parseHVA(out string) (uint64, error) {
	f := strings.Fields(out)
	if len(f) == 0 || !strings.HasPrefix(out, "Host virtual address") {
		return 0, fmt.Errorf("find plugged memory: QEMU says %.100q", out)
	}
	addr, err := strconv.ParseUint(f[len(f)-1], 0, 64)
	if err != nil || addr%4096 != 0 {
		return 0, fmt.Errorf("find plugged memory: QEMU says %.100q", out)
	}
	return addr, nil
}

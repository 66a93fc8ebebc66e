package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
)

// maxState bounds a device state, in bytes; real ones have about 125 KB.
const maxState = 64 << 20

// Names of a snapshot's files.
const (
	stateFile  = "device.state"
	memoryFile = "memory.img"
	pagesFile  = "memory.pages"
)

// Regions of a page file.
const (
	bootRegion = 0
	plugRegion = 1
)

// knownRAMBlocks are the blocks of guest memory of machine shape v1. A device
// state holds none of them: the first two are saved by us, the others are
// firmware and tables that QEMU makes anew from the same arguments, and that a
// guest only reads while it boots.
var knownRAMBlocks = []string{
	bootMemoryID, "0000:00:06.0/" + plugMemoryID, "pc.bios", "pc.rom",
	"/rom@etc/acpi/tables", "/rom@etc/table-loader", "/rom@etc/acpi/rsdp",
}

// checkRAMBlocks refuses a machine that has memory we would not save:
// xen-save-devices-state leaves out every block without a word.
func (m *Machine) checkRAMBlocks(ctx context.Context) error {
	var out string
	if err := m.run(ctx, "human-monitor-command", map[string]any{"command-line": "info ramblock"}, &out); err != nil {
		return err
	}
	names := ramBlocks(out)
	if !slices.Contains(names, bootMemoryID) {
		return errors.New("the machine's boot memory is not among its memory blocks")
	}
	for _, n := range names {
		if !slices.Contains(knownRAMBlocks, n) {
			return fmt.Errorf("the machine has a memory block %q that a snapshot would lose", n)
		}
	}
	return nil
}

// ramBlocks returns the names in the output of "info ramblock": a title line,
// then one line a block that starts with its name.
func ramBlocks(out string) []string {
	var names []string
	for i, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 0 {
			names = append(names, f[0])
		}
	}
	return names
}

// stateSet is the name of the add-fd set that device state is written to.
const stateSet = "state"

// saveState returns the state of all devices and vCPUs, without memory.
func (m *Machine) saveState(ctx context.Context) ([]byte, error) {
	if err := m.checkRAMBlocks(ctx); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("ramet-state", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("save device state: %w", err)
	}
	f := os.NewFile(uintptr(fd), "device state")
	defer f.Close()
	// QEMU looks in the set for a descriptor with exactly the access it opens with.
	w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("save device state: %w", err)
	}
	defer w.Close()
	set, err := m.addFDs(ctx, stateSet, w)
	if err != nil {
		return nil, err
	}
	serr := m.run(ctx, "xen-save-devices-state", map[string]any{"filename": fmt.Sprintf("/dev/fdset/%d", set), "live": false}, nil)
	rerr := m.run(ctx, "remove-fd", map[string]any{"fdset-id": set}, nil)
	if err := errors.Join(serr, rerr); err != nil {
		return nil, err
	}
	state, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, 0, maxState+1), maxState+1))
	if err != nil {
		return nil, fmt.Errorf("save device state: %w", err)
	}
	if len(state) == 0 || len(state) > maxState {
		return nil, fmt.Errorf("save device state: QEMU wrote %d bytes", len(state))
	}
	return state, nil
}

// addFDs gives QEMU files as a new add-fd set and returns its number. The name finds it again.
func (m *Machine) addFDs(ctx context.Context, name string, files ...*os.File) (int, error) {
	m.mu.Lock()
	set := m.nextSet
	m.nextSet++
	m.mu.Unlock()
	for _, f := range files {
		if err := m.run(ctx, "add-fd", map[string]any{"fdset-id": set, "opaque": name}, nil, f); err != nil {
			return 0, err
		}
	}
	return set, nil
}

// loadState feeds the snapshot's device state to a QEMU that waits for it.
func (s *start) loadState(ctx context.Context) error {
	if !s.incoming {
		return nil
	}
	f, err := s.manifest.State.Open(s.cfg.Source.Snapshot)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.manifest.State.Size > maxState {
		return &snapshot.CorruptError{Path: f.Name(), Reason: "it is too large"}
	}
	if s.manifest.State.SHA256 != "" {
		if err := s.manifest.State.VerifyOpen(f); err != nil {
			return err
		}
	}
	events := s.m.qmp.Subscribe("MIGRATION")
	defer events.Close()
	if err := s.m.run(ctx, "getfd", map[string]any{"fdname": "state"}, nil, f); err != nil {
		return err
	}
	// Without this QEMU queues announcements of the guest's address, and sends them
	// at cont. 7.2 then crashes when its network has no connection yet.
	quiet := map[string]any{"announce-rounds": 0}
	if err := s.m.run(ctx, "migrate-set-parameters", quiet, nil); err != nil {
		return err
	}
	if err := s.m.run(ctx, "migrate-incoming", map[string]any{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return s.m.explain(ctx, err)
		}
		var d struct{ Status string }
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return fmt.Errorf("migration event: %w", err)
		}
		switch d.Status {
		case "completed":
			return nil
		case "failed":
			return s.m.explain(ctx, errors.New("QEMU could not load the device state"))
		}
	}
}

// openPages opens the page file, which an ephemeral snapshot keeps in memory.
func (s *start) openPages() (*os.File, error) {
	saving, ok := s.cfg.Source.Saving.(*saving)
	if !ok || !saving.o.Ephemeral {
		return s.manifest.Pages.Open(s.cfg.Source.Snapshot)
	}
	return dupFile(saving.pages.file)
}

// placeMemory writes a delta's pages into the new machine's memory.
func (s *start) placeMemory(ctx context.Context) error {
	if !s.incoming || s.manifest.Pages == nil {
		return nil
	}
	file, err := s.openPages()
	if err != nil {
		return err
	}
	defer file.Close()
	boot, plug, err := s.m.memoryRegions(ctx)
	if err != nil {
		return err
	}
	regions := []memRange{bootRegion: boot, plugRegion: plug}
	return s.manifest.Pages.ReadPagesOf(file, []uint64{boot.size, plug.size},
		func(region uint32, offset uint64, data []byte) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return writeMemory(s.m.pid, regions[region].start+offset, data)
		})
}

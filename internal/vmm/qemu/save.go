package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"ramet.dev/ramet/internal/snapshot"
)

// Save implements vmm.Machine: device state, disk and memory of the paused
// machine, all at the same instant.
func (m *Machine) Save(ctx context.Context, dir string) error {
	if err := m.save(ctx, dir); err != nil {
		return fmt.Errorf("save machine: %w", err)
	}
	return nil
}

func (m *Machine) save(ctx context.Context, dir string) error {
	var status struct{ Running bool }
	if err := m.run(ctx, "query-status", nil, &status); err != nil {
		return err
	}
	if status.Running {
		return errors.New("it is not paused")
	}
	state, err := m.saveState(ctx)
	if err != nil {
		return err
	}
	plug, err := m.queryPlugged(ctx)
	if err != nil {
		return err
	}
	if err := m.freezeDisk(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	man := m.newManifest(rec, rec.bootMB()+int(plug.Size>>20))
	if rec.Golden {
		err = m.saveMemory(ctx, dir, man, rec, plug)
	} else {
		err = m.savePages(ctx, dir, man, rec)
	}
	if err != nil {
		return err
	}
	if man.State, err = snapshot.WriteFile(dir, stateFile, bytes.NewReader(state)); err != nil {
		return err
	}
	if man.Layers, err = m.saveLayers(dir, rec); err != nil {
		return err
	}
	if err := man.Save(dir); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// saveMemory writes the whole boot memory of a golden machine, and pages that
// were plugged into it, if any.
func (m *Machine) saveMemory(ctx context.Context, dir string, man *snapshot.Manifest, rec record, plug plugged) error {
	m.mu.Lock()
	memory := m.memory
	m.mu.Unlock()
	if memory == nil {
		return errors.New("the golden memory is not open in this process")
	}
	f, err := snapshot.WriteMemory(dir, memoryFile, memory, int64(rec.bootMB())<<20)
	if err != nil {
		return err
	}
	man.Memory = &f
	if plug.Size == 0 {
		return nil
	}
	_, where, err := m.memoryRegions(ctx)
	if err != nil {
		return err
	}
	pages, err := snapshot.WritePages(dir, pagesFile, func(w *snapshot.PageWriter) error {
		return m.copyPages(w, plugRegion, where)
	})
	man.Pages = &pages
	return err
}

// savePages writes the pages that the machine does not share with its base.
func (m *Machine) savePages(ctx context.Context, dir string, man *snapshot.Manifest, rec record) error {
	base, err := m.baseOf(rec)
	if err != nil {
		return err
	}
	man.Base = base
	boot, plug, err := m.memoryRegions(ctx)
	if err != nil {
		return err
	}
	pages, err := snapshot.WritePages(dir, pagesFile, func(w *snapshot.PageWriter) error {
		if err := m.copyPages(w, bootRegion, boot); err != nil {
			return err
		}
		return m.copyPages(w, plugRegion, plugRange(plug, rec.PlugMB))
	})
	man.Pages = &pages
	return err
}

// copyPages adds the machine's own pages of a region to w.
func (m *Machine) copyPages(w *snapshot.PageWriter, region uint32, r memRange) error {
	buf := make([]byte, snapshot.MaxRun)
	return ownRuns(m.pid, r, snapshot.MaxRun, func(offset, size uint64) error {
		if err := readMemory(m.pid, r.start+offset, buf[:size]); err != nil {
			return err
		}
		return w.Add(region, offset, buf[:size])
	})
}

// freezeDisk makes the machine's top layer read-only and puts a new one on it.
// QEMU writes its caches to the old one as it reopens it.
func (m *Machine) freezeDisk(ctx context.Context) error {
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	top := len(rec.Layers) - 1
	path := filepath.Join(m.dir, layerName(top+1))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("freeze disk: %w", err) // of a save that failed
	}
	if err := createOverlay(path, int64(rec.DiskMB)<<20); err != nil {
		return err
	}
	if err := m.addOverlay(ctx, path, top+1); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	snap := map[string]any{"node": layerNode(top), "overlay": layerNode(top + 1)}
	if err := m.run(ctx, "blockdev-snapshot", snap, nil); err != nil {
		del := m.run(ctx, "blockdev-del", map[string]any{"node-name": layerNode(top + 1)}, nil)
		return errors.Join(err, del, os.Remove(path))
	}
	frozen, err := snapshot.SumFile(filepath.Join(m.dir, layerName(top)))
	if err != nil {
		return fmt.Errorf("freeze disk: %w", err)
	}
	layers := append(append([]snapshot.File{}, rec.Layers[:top]...), frozen, snapshot.File{Name: layerName(top + 1)})
	return m.updateRecord(func(r *record) { r.Layers = layers })
}

// addOverlay makes the new layer known to QEMU, without a backing node yet.
func (m *Machine) addOverlay(ctx context.Context, path string, layer int) error {
	var files []*os.File
	for _, mode := range []int{os.O_RDWR, os.O_RDONLY} {
		f, err := os.OpenFile(path, mode, 0)
		if err != nil {
			return errors.Join(fmt.Errorf("open new layer: %w", err), closeAll(files))
		}
		files = append(files, f)
	}
	set, err := m.addFDs(ctx, files...)
	if err := errors.Join(err, closeAll(files)); err != nil {
		return err
	}
	return m.run(ctx, "blockdev-add", blockNode(layerNode(layer), "qcow2", set, "", true), nil)
}

// saveLayers puts the frozen layers into the snapshot. A golden belongs to
// every tenant, so its layer is a copy that no QEMU ever had open for writing;
// others are links.
func (m *Machine) saveLayers(dir string, rec record) ([]snapshot.File, error) {
	frozen := rec.Layers[:len(rec.Layers)-1]
	for _, l := range frozen {
		src, dst := filepath.Join(m.dir, l.Name), filepath.Join(dir, l.Name)
		put := snapshot.LinkOrCopy
		if rec.Golden {
			put = snapshot.Copy
		}
		if err := put(src, dst); err != nil {
			return nil, fmt.Errorf("save disk layer: %w", err)
		}
		f, err := os.Open(dst)
		if err != nil {
			return nil, fmt.Errorf("save disk layer: %w", err)
		}
		// The running overlays are not flushed, so their data may still be in the cache.
		err = errors.Join(f.Sync(), f.Chmod(0o444), m.d.verified.check(f, l), f.Close())
		if err != nil {
			return nil, fmt.Errorf("save disk layer: %w", err)
		}
	}
	return append([]snapshot.File{}, frozen...), snapshot.SyncDir(dir)
}

// bootRange is where the boot memory is mapped in the process.
func (m *Machine) bootRange() (memRange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.memory == nil {
		return memRange{}, fmt.Errorf("find guest memory: %w", os.ErrProcessDone)
	}
	st, err := m.memory.Stat()
	if err != nil {
		return memRange{}, fmt.Errorf("find guest memory: %w", err)
	}
	return findMapping(m.pid, st.Sys().(*syscall.Stat_t).Ino, uint64(m.rec.bootMB())<<20)
}

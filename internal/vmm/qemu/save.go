package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// saving is a snapshot that has been captured.
type saving struct {
	m    *Machine
	dir  string
	o    vmm.SaveOptions
	info sandbox.SaveInfo

	boot, plug memRange // where the memory lies in the process
	manifest   *snapshot.Manifest
	state      []byte
	// pages takes the memory of a machine that ran: in memory, so that it can run on
	// soon. file is the page file in dir, which an ephemeral snapshot does not have.
	pages *pageBuffer
	file  *os.File
	once  sync.Once
	err   error // of Close
}

// Save implements vmm.Machine. What can be done while the guest runs is done before it
// stands still, or in Finish: the pause is for what has to be of one instant.
func (m *Machine) Save(ctx context.Context, dir string, o vmm.SaveOptions) (vmm.Saving, error) {
	s := &saving{m: m, dir: dir, o: o}
	if err := s.save(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("save machine: %w", err), s.Close())
	}
	return s, nil
}

func (s *saving) save(ctx context.Context) (err error) {
	m := s.m
	begin := time.Now()
	done, err := m.stopFlatten(ctx)
	if err != nil {
		return err
	}
	defer done()
	m.mu.Lock()
	running, layers := m.running, len(m.rec.Layers)
	m.mu.Unlock()
	if layers > tooManyLayers {
		if err := m.flatten(ctx, flattenAt); err != nil {
			return fmt.Errorf("flatten disk: %w", err)
		}
		s.step("flatten", begin)
		begin = time.Now()
	}
	over, err := s.prepare(ctx, running && !s.o.Stay)
	if err != nil {
		return err
	}
	s.step("prepare", begin)
	paused := time.Now()
	if running {
		if err := m.Pause(ctx); err != nil {
			// It may have stopped nevertheless.
			return errors.Join(err, m.goOn(), over.drop())
		}
		s.step("pause", paused)
	}
	err = s.capture(ctx, over)
	if running && (err != nil || !s.o.Stay) {
		begin := time.Now()
		err = errors.Join(err, m.goOn())
		s.step("resume", begin)
		s.info.Paused = time.Since(paused)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func (s *saving) step(name string, begin time.Time) {
	s.info.Steps = append(s.info.Steps, sandbox.StepTime{Name: name, Took: time.Since(begin)})
}

// goOn resumes a machine whatever happened to the caller's context.
func (m *Machine) goOn() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return m.Resume(ctx)
}

// prepare does all that needs no pause. goesOn says that the machine is to run again soon.
func (s *saving) prepare(ctx context.Context, goesOn bool) (*overlay, error) {
	m := s.m
	if !s.o.DiskOnly {
		if err := m.checkRAMBlocks(ctx); err != nil {
			return nil, err
		}
		var err error
		if s.boot, s.plug, err = m.memoryRegions(ctx); err != nil {
			return nil, err
		}
		if goesOn || s.o.Ephemeral {
			if err := s.makeBuffer(); err != nil {
				return nil, err
			}
		}
		if err := s.openFile(); err != nil {
			return nil, err
		}
	}
	return m.newOverlay(ctx)
}

// regions are where the machine's memory lies, by region of the page file. The boot
// memory of a golden machine is saved as a whole.
func (s *saving) regions() []memRange {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	all := []memRange{bootRegion: s.boot, plugRegion: plugRange(s.plug, s.m.rec.PlugMB)}
	if s.m.rec.Golden {
		all[bootRegion] = memRange{}
	}
	return all
}

// makeBuffer makes room for what the machine has written so far.
func (s *saving) makeBuffer() (err error) {
	var total uint64
	for _, r := range s.regions() {
		if err := ownRuns(s.m.pid, r, snapshot.MaxRun, func(_, size uint64) error { total += size; return nil }); err != nil {
			return err
		}
	}
	s.pages, err = newPageBuffer(total)
	return err
}

func (s *saving) openFile() (err error) {
	if s.o.Ephemeral {
		return nil
	}
	s.file, err = s.m.d.cfg.Disk.Open("snapshot.pages", filepath.Join(s.dir, pagesFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("open page file: %w", err)
	}
	return nil
}

// capture takes what has to be of one instant. The machine is paused.
func (s *saving) capture(ctx context.Context, over *overlay) (err error) {
	m := s.m
	begin := time.Now()
	if !s.o.DiskOnly {
		if s.state, err = m.saveState(ctx); err != nil {
			return errors.Join(err, over.drop())
		}
		s.step("device_state", begin)
	}
	plug, err := m.queryPlugged(ctx)
	if err != nil {
		return errors.Join(err, over.drop())
	}
	begin = time.Now()
	if err := over.insert(ctx); err != nil {
		return err
	}
	s.step("disk", begin)
	m.mu.Lock()
	rec := m.rec
	m.mu.Unlock()
	s.manifest = m.newManifest(rec, rec.bootMB()+int(plug.Size>>20))
	s.manifest.Layers = append([]snapshot.File{}, rec.Layers[:len(rec.Layers)-1]...)
	if !s.o.DiskOnly {
		begin = time.Now()
		if err := s.captureMemory(rec); err != nil {
			return err
		}
		s.step("memory", begin)
	}
	return s.linkLayers(rec)
}

func (s *saving) captureMemory(rec record) (err error) {
	if !rec.Golden {
		if s.manifest.Base, err = s.m.baseOf(rec); err != nil {
			return err
		}
	}
	regions := s.regions()
	if s.pages != nil {
		for region, r := range regions {
			if err := s.pages.copy(s.m.pid, uint32(region), r); err != nil {
				return err
			}
		}
		s.info.DirtyBytes = s.pages.bytes()
		return nil
	}
	w := snapshot.NewPageWriter(s.file)
	for region, r := range regions {
		if err := s.m.copyPages(w, uint32(region), r); err != nil {
			return err
		}
	}
	return s.finishPages(w)
}

// finishPages completes the page file in the snapshot's directory.
func (s *saving) finishPages(w *snapshot.PageWriter) error {
	if err := w.Finish(); err != nil {
		return err
	}
	s.info.DirtyBytes = w.Pages() * snapshot.PageSize
	s.manifest.Pages = &snapshot.File{Name: pagesFile, Size: w.Size()}
	return nil
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

// linkLayers puts the frozen layers into the snapshot. A golden belongs to
// every tenant, so its layer is a copy that no QEMU ever had open for writing;
// others are links.
func (s *saving) linkLayers(rec record) error {
	put := snapshot.LinkOrCopy
	if rec.Golden {
		put = snapshot.Copy
	}
	for _, l := range s.manifest.Layers {
		if err := put(s.m.d.cfg.Disk, filepath.Join(s.m.dir, l.Name), filepath.Join(s.dir, l.Name)); err != nil {
			return fmt.Errorf("save disk layer: %w", err)
		}
	}
	return nil
}

// Finish implements vmm.Saving.
func (s *saving) Finish(ctx context.Context) error {
	if err := s.finish(ctx); err != nil {
		return fmt.Errorf("complete snapshot: %w", err)
	}
	return nil
}

func (s *saving) finish(ctx context.Context) (err error) {
	man := s.manifest
	if s.o.Ephemeral {
		return s.finishEphemeral()
	}
	if !s.o.DiskOnly {
		if s.pages != nil {
			w := snapshot.NewPageWriter(s.file)
			if err := errors.Join(s.pages.each(w.Add), s.finishPages(w), s.closePages()); err != nil {
				return err
			}
		}
		if man.State, err = snapshot.WriteFile(s.m.d.cfg.Disk, s.dir, stateFile, bytes.NewReader(s.state)); err != nil {
			return err
		}
		if err := s.m.d.cfg.Disk.Sync("snapshot.pages", s.file); err != nil {
			return err
		}
		s.info.SizeBytes += man.State.Size + man.Pages.Size
	}
	if err := s.finishGolden(); err != nil {
		return err
	}
	for i := range man.Layers {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := s.finishLayer(&man.Layers[i]); err != nil {
			return fmt.Errorf("save disk layer: %w", err)
		}
	}
	if err := man.Save(s.m.d.cfg.Disk, s.dir); err != nil {
		return err
	}
	return s.m.d.cfg.Disk.SyncDir("snapshot.names", s.dir)
}

func (s *saving) finishEphemeral() error {
	size, err := s.pages.finish()
	if err != nil {
		return err
	}
	s.manifest.Pages = &snapshot.File{Name: pagesFile, Size: size}
	if err := snapshot.WriteVolatile(s.dir, stateFile, s.state); err != nil {
		return err
	}
	s.manifest.State = snapshot.File{Name: stateFile, Size: int64(len(s.state))}
	return s.manifest.SaveVolatile(s.dir)
}

func (s *saving) closePages() error {
	p := s.pages
	s.pages = nil
	if p == nil {
		return nil
	}
	return p.close()
}

// finishGolden writes the boot memory of a golden machine, which stays paused.
func (s *saving) finishGolden() error {
	m := s.m
	m.mu.Lock()
	golden, memory := m.rec.Golden, m.memory
	m.mu.Unlock()
	if !golden || s.o.DiskOnly {
		return nil
	}
	if memory == nil {
		return errors.New("the golden memory is not open in this process")
	}
	f, err := snapshot.WriteMemory(s.m.d.cfg.Disk, s.dir, memoryFile, memory, int64(m.rec.bootMB())<<20)
	if err != nil {
		return err
	}
	s.manifest.Memory = &f
	s.info.SizeBytes += f.Size
	return nil
}

// finishLayer makes a frozen layer durable and computes its checksum. The running
// overlays are not flushed, so its data may still be in the cache.
func (s *saving) finishLayer(l *snapshot.File) error {
	f, err := os.Open(filepath.Join(s.dir, l.Name))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(s.m.d.cfg.Disk.Sync("snapshot.layer", f), f.Chmod(0o444)); err != nil {
		return err
	}
	if l.SHA256 != "" {
		err = s.m.d.verified.Check(f, *l)
	} else {
		*l, err = s.m.d.verified.Sum(f)
	}
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	s.info.SizeBytes += st.Blocks * 512
	return nil
}

// Info implements vmm.Saving.
func (s *saving) Info() sandbox.SaveInfo { return s.info }

// Close implements vmm.Saving.
func (s *saving) Close() error {
	s.once.Do(func() {
		s.err = s.closePages()
		if s.file != nil {
			s.err = errors.Join(s.err, s.file.Close())
		}
	})
	return s.err
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

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// shapeVersion changes when what a sandbox is made of does: the spec, runsc's flags.
const shapeVersion = 1

// The files of a snapshot, and the names that runsc knows them by, in the order in which
// a sentry takes them.
var (
	memoryFiles = []string{"checkpoint.img", "pages-meta.img", "pages.img"}
	diskFiles   = []string{"disk.pb", "disk-tree.img", "disk-pages-meta.img", "disk-pages.img"}
	diskNames   = []string{"fscheckpoint.pb", "multitar.img", "pages_meta.img", "pages.img"}
)

// saving is a snapshot that has been captured.
type saving struct {
	m        *Machine
	dir      string
	o        vmm.SaveOptions
	info     sandbox.SaveInfo
	manifest *snapshot.Manifest

	mu     sync.Mutex
	memory []*os.File // guarded by mu
	disk   []*os.File // guarded by mu
}

// Save implements vmm.Machine.
func (m *Machine) Save(ctx context.Context, dir string, o vmm.SaveOptions) (vmm.Saving, error) {
	if err := m.Err(); err != nil {
		return nil, fmt.Errorf("save machine: %w", err)
	}
	s := &saving{m: m, dir: dir, o: o}
	if err := s.save(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("save machine: %w", err), s.Close())
	}
	return s, nil
}

func (s *saving) save(ctx context.Context) error {
	m := s.m
	m.mu.Lock()
	rec, running := m.rec, m.running
	m.mu.Unlock()
	if !rec.Started {
		return sandbox.Errorf(sandbox.Conflict, "not_started", "the machine has not run yet; what it starts from is its snapshot")
	}
	if err := s.open(); err != nil {
		return err
	}
	paused := time.Now()
	if running {
		if err := m.Pause(ctx); err != nil {
			return err
		}
		s.step("pause", paused)
	}
	err := s.explainFull(s.capture(ctx))
	if running && (err != nil || !s.o.Stay) {
		begin := time.Now()
		err = errors.Join(err, m.goOn())
		s.step("resume", begin)
		s.info.Paused = time.Since(paused)
	}
	if err != nil {
		return err
	}
	s.manifest = &snapshot.Manifest{
		Format: snapshot.Format, CreatedAt: time.Now().UTC(),
		Driver: driverName, DriverVersion: m.d.version, ShapeVersion: shapeVersion,
		VCPUs: rec.VCPUs, MemoryMB: rec.MemoryMB, DiskMB: rec.DiskMB, ImageHash: m.image,
	}
	return context.Cause(ctx)
}

// fullMB is how much room a disk has at most that is called full.
const fullMB = 1

// explainFull finds out whether a capture failed because the disk is full: errors of the sentry are texts.
func (s *saving) explainFull(err error) error {
	if err == nil || s.o.Ephemeral {
		return err
	}
	var st unix.Statfs_t
	if serr := unix.Statfs(s.dir, &st); serr == nil && st.Bavail*uint64(st.Bsize) < fullMB<<20 {
		return fmt.Errorf("%w: %w", unix.ENOSPC, err)
	}
	return err
}

func (s *saving) step(name string, begin time.Time) {
	s.info.Steps = append(s.info.Steps, sandbox.StepTime{Name: name, Took: time.Since(begin)})
}

// open makes the snapshot's files: in memory when it is ephemeral.
func (s *saving) open() error {
	make := func(name string) (*os.File, error) {
		if s.o.Ephemeral {
			fd, err := unix.MemfdCreate("ramet-"+name, unix.MFD_CLOEXEC)
			if err != nil {
				return nil, fmt.Errorf("make a file in memory: %w", err)
			}
			return os.NewFile(uintptr(fd), name), nil
		}
		return s.m.d.cfg.Disk.Open("snapshot."+name, filepath.Join(s.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, set := range []struct {
		into   *[]*os.File
		names  []string
		wanted bool
	}{{&s.memory, memoryFiles, !s.o.DiskOnly}, {&s.disk, diskFiles, !s.o.Ephemeral}} {
		for _, name := range set.names {
			if !set.wanted {
				break
			}
			f, err := make(name)
			if err != nil {
				return err
			}
			*set.into = append(*set.into, f)
		}
	}
	return nil
}

// capture takes what has to be of one instant. The machine is paused, and gVisor counts pauses.
func (s *saving) capture(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.disk) > 0 {
		begin := time.Now()
		args := &saveDiskArgs{}
		args.Files = s.disk
		if err := s.m.call(ctx, callSaveDisk, args, nil); err != nil {
			return err
		}
		s.step("disk", begin)
	}
	if len(s.memory) == 0 {
		return nil
	}
	begin := time.Now()
	args := &checkpointArgs{Metadata: map[string]string{"compression": "none"}, SkipZeros: true, HavePages: true, Resume: true}
	args.Files = s.memory
	if err := s.m.call(ctx, callCheckpoint, args, nil); err != nil {
		return err
	}
	s.step("memory", begin)
	size, err := fileSize(s.memory[2])
	s.info.DirtyBytes = size
	return err
}

func fileSize(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// memoryFiles returns the checkpoint, opened again: each reader has a position of its own.
func (s *saving) memoryFiles() (files []*os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.memory) == 0 {
		return nil, errors.New("the snapshot is closed")
	}
	for _, f := range s.memory {
		again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
		if err != nil {
			return nil, errors.Join(err, (&plan{memory: files}).close())
		}
		files = append(files, again)
	}
	return files, nil
}

// Finish implements vmm.Saving.
func (s *saving) Finish(ctx context.Context) error {
	if err := s.finish(ctx); err != nil {
		return fmt.Errorf("complete snapshot: %w", err)
	}
	return nil
}

func (s *saving) finish(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var memory, disk []snapshot.File
	for _, set := range []struct {
		of   []*os.File
		into *[]snapshot.File
	}{{s.memory, &memory}, {s.disk, &disk}} {
		for _, f := range set.of {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			entry, err := s.entry(f)
			if err != nil {
				return err
			}
			*set.into = append(*set.into, entry)
			s.info.SizeBytes += entry.Size
		}
	}
	man := s.manifest
	if len(memory) > 0 {
		man.State, man.Extra, man.Memory = memory[0], memory[1:2], &memory[2]
	}
	man.Layers = disk
	if s.o.Ephemeral {
		return man.SaveVolatile(s.dir)
	}
	if err := man.Save(s.m.d.cfg.Disk, s.dir); err != nil {
		return err
	}
	return s.m.d.cfg.Disk.SyncDir("snapshot.names", s.dir)
}

// entry makes a file durable and returns its place in the manifest.
func (s *saving) entry(f *os.File) (snapshot.File, error) {
	if s.o.Ephemeral {
		size, err := fileSize(f)
		return snapshot.File{Name: filepath.Base(f.Name()), Size: size}, err
	}
	if err := errors.Join(s.m.d.cfg.Disk.Sync("snapshot."+filepath.Base(f.Name()), f), f.Chmod(0o444)); err != nil {
		return snapshot.File{}, err
	}
	return s.m.d.verified.Sum(f)
}

// Info implements vmm.Saving.
func (s *saving) Info() sandbox.SaveInfo { return s.info }

// Close implements vmm.Saving.
func (s *saving) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := plan{memory: s.memory, disk: s.disk}
	s.memory, s.disk = nil, nil
	return p.close()
}

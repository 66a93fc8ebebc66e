package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
	"ramet.dev/ramet/internal/vmm/process"
)

// starting is a machine on its way.
type starting struct {
	d       *Driver
	cfg     vmm.Config
	rec     record
	image   *os.File
	plan    plan
	console *console.Console
	stdio   []*os.File // the guest's ends
	m       *Machine
	undo    []func() error // last in, first out
}

// Start implements vmm.Driver. What a sandbox starts from is checked and opened here, and
// its processes are made; the guest's state is loaded by the first Resume.
func (d *Driver) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	s := d.newStarting(c)
	if err := s.run(ctx, slices.Concat([]step{{"choose a source", (*starting).choose}}, makeSteps, fillSteps)); err != nil {
		return nil, err
	}
	return s.m, nil
}

func (d *Driver) newStarting(c vmm.Config) *starting {
	c.Dir = filepath.Clean(c.Dir)
	return &starting{d: d, cfg: c, rec: record{
		Owner: machinefile.Owner{Driver: driverName}, Instance: c.Instance, CreatedAt: time.Now().UTC(), Version: d.version,
		VCPUs: c.Shape.VCPUs, MemoryMB: c.Shape.MemoryMB, DiskMB: c.Shape.DiskMB, Golden: c.Golden,
	}}
}

type step struct {
	name string
	do   func(*starting, context.Context) error
}

var (
	// makeSteps make a sandbox that waits for what it is to run.
	makeSteps = []step{
		{"find the root filesystem", (*starting).findRoot},
		{"make directories", (*starting).makeDirs},
		{"open console", (*starting).openConsole},
		{"open the agent's stream", (*starting).openStream},
		{"make sandbox", (*starting).create},
		{"take the sandbox", (*starting).take},
		{"make network card", (*starting).makeCard},
	}
	// fillSteps make it the machine of the configuration.
	fillSteps = []step{
		{"hand over the memory", (*starting).handOver},
		{"set the size", (*starting).resize},
		{"confine", (*starting).confine},
	}
)

// run runs steps, and undoes all of the start when one fails.
func (s *starting) run(ctx context.Context, steps []step) error {
	for _, step := range steps {
		err := context.Cause(ctx)
		if err == nil {
			err = step.do(s, ctx)
		}
		if err != nil {
			return s.fail(fmt.Errorf("start machine %s: %s: %w", s.cfg.Instance, step.name, err))
		}
	}
	return nil
}

func (s *starting) onFail(f func() error) { s.undo = append(s.undo, f) }

// fail undoes what has been done, and returns the error of the start.
func (s *starting) fail(err error) error {
	con := ""
	if s.console != nil {
		con = s.console.String()
	}
	errs := []error{err}
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return &vmm.StartError{Err: errors.Join(errs...), Console: con}
}

// plan is what a sandbox starts from.
type plan struct {
	manifest *snapshot.Manifest // nil: nothing
	memory   []*os.File         // of a checkpoint, in the order of memoryFiles
	disk     []*os.File         // of a saved disk, in the order of diskNames
}

func (p *plan) close() error {
	var errs []error
	for _, f := range append(p.memory, p.disk...) {
		errs = append(errs, f.Close())
	}
	p.memory, p.disk = nil, nil
	return errors.Join(errs...)
}

func (s *starting) choose(ctx context.Context) (err error) {
	s.onFail(s.plan.close)
	src := s.cfg.Source
	if src.Snapshot == "" {
		return nil
	}
	man, err := snapshot.Load(src.Snapshot)
	if err != nil {
		return err
	}
	diskOnly := src.DiskOnly || man.DiskOnly()
	if err := s.d.fits(man, s.cfg, diskOnly); err != nil {
		return err
	}
	s.plan.manifest = man
	// What a guest has once it keeps.
	s.rec.MemoryMB, s.rec.DiskMB = max(s.rec.MemoryMB, man.MemoryMB), max(s.rec.DiskMB, man.DiskMB)
	if saving, ok := src.Saving.(*saving); ok && saving != nil && !diskOnly {
		s.plan.memory, err = saving.memoryFiles()
		return err
	}
	if s.plan.disk, err = s.d.openAll(ctx, src.Snapshot, man.Layers); err != nil || diskOnly {
		return err
	}
	// The disk is in the memory's files too, and was opened only to see that it is whole.
	if err := s.plan.close(); err != nil {
		return err
	}
	s.plan.memory, err = s.d.openAll(ctx, src.Snapshot, slices.Concat([]snapshot.File{man.State}, man.Extra, []snapshot.File{*man.Memory}))
	return err
}

// fits says whether a snapshot can be used for c on this host.
func (d *Driver) fits(man *snapshot.Manifest, c vmm.Config, diskOnly bool) error {
	mismatch := func(what, have, want any) error {
		return fmt.Errorf("%w: %v is %v, not %v", vmm.ErrSnapshotMismatch, what, have, want)
	}
	switch {
	case man.Driver != driverName:
		return mismatch("its driver", man.Driver, driverName)
	case man.ImageHash != c.Source.Image.Hash:
		return mismatch("its image", man.ImageHash, c.Source.Image.Hash)
	case len(man.Layers) != len(diskNames) && (diskOnly || len(man.Layers) != 0):
		return &snapshot.CorruptError{Path: filepath.Join(c.Source.Snapshot, snapshot.ManifestName), Reason: "it has not the files of a disk"}
	case diskOnly:
		return nil
	case man.DriverVersion != d.version:
		return mismatch("its version of gVisor", man.DriverVersion, d.version)
	case man.ShapeVersion != shapeVersion:
		return mismatch("its shape's version", man.ShapeVersion, shapeVersion)
	case man.VCPUs != c.Shape.VCPUs:
		return mismatch("its number of vCPUs", man.VCPUs, c.Shape.VCPUs)
	case man.Memory == nil || len(man.Extra) != 1:
		return &snapshot.CorruptError{Path: filepath.Join(c.Source.Snapshot, snapshot.ManifestName), Reason: "it has not the files of a checkpoint"}
	}
	return nil
}

// openAll opens files of a snapshot and checks their content.
func (d *Driver) openAll(ctx context.Context, dir string, list []snapshot.File) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, (&plan{memory: files}).close())
			files = nil
		}
	}()
	for _, l := range list {
		if err := context.Cause(ctx); err != nil {
			return files, err
		}
		f, err := l.Open(dir)
		if err != nil {
			return files, err
		}
		files = append(files, f)
		if l.SHA256 == "" { // of a snapshot that is for this process
			return files, errors.New("an ephemeral snapshot is only of use while it is held")
		}
		if err := d.verified.Check(f, l); err != nil {
			return files, err
		}
	}
	return files, nil
}

func (s *starting) findRoot(ctx context.Context) error {
	path, err := s.d.root(ctx, s.cfg.Source.Image)
	if err != nil {
		return err
	}
	if s.image, err = os.Open(path); err == nil {
		s.onFail(s.closeImage)
	}
	return err
}

func (s *starting) closeImage() error {
	f := s.image
	s.image = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

func (s *starting) makeDirs(context.Context) error {
	s.onFail(s.clean)
	for _, dir := range []string{stateDir, bundleDir, storeDir, bundleDir + "/rootfs"} {
		if err := os.Mkdir(filepath.Join(s.cfg.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	b, err := newSpec(filepath.Join(s.cfg.Dir, bundleDir, "rootfs"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.cfg.Dir, bundleDir, "config.json"), b, 0o600); err != nil {
		return err
	}
	// Before there is a process: whoever finds the directory knows whose it is.
	return machinefile.Write(s.cfg.Dir, s.rec)
}

// clean empties the instance directory, which stays.
func (s *starting) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	defer s.d.forget(s.cfg.Dir)
	if err := s.d.end(ctx, s.cfg.Dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(s.cfg.Dir, e.Name())))
	}
	return errors.Join(errs...)
}

func (s *starting) openConsole(context.Context) (err error) {
	s.console, err = console.Open(s.cfg.Dir, s.d.cfg.ConsoleBytes)
	if err == nil {
		s.onFail(s.console.Abandon)
	}
	return err
}

// openStream makes the FIFOs of the agent, and opens the guest's ends.
func (s *starting) openStream(context.Context) error {
	open := func(name string, flag int) error {
		f, err := os.OpenFile(filepath.Join(s.cfg.Dir, name), flag|unix.O_NONBLOCK, 0)
		if err == nil {
			s.stdio = append(s.stdio, f)
		}
		return err
	}
	s.onFail(s.closeStdio)
	for _, name := range []string{toGuest, fromGuest} {
		if err := unix.Mkfifo(filepath.Join(s.cfg.Dir, name), 0o600); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	// The guest has both ends of each, so that a host that leaves is no end of file to it, nor a
	// broken pipe: another one comes.
	return errors.Join(open(toGuest, os.O_RDWR), open(fromGuest, os.O_RDWR), open(console.GuestName, os.O_WRONLY))
}

func (s *starting) closeStdio() error {
	var errs []error
	for _, f := range s.stdio {
		errs = append(errs, f.Close())
	}
	s.stdio = nil
	return errors.Join(errs...)
}

// create makes the sandbox's process, which waits for Resume.
func (s *starting) create(ctx context.Context) error {
	args := []string{"create", "--bundle=" + filepath.Join(s.cfg.Dir, bundleDir), "--pid-file=" + filepath.Join(s.cfg.Dir, pidName)}
	if s.plan.disk != nil {
		links, err := linkFiles(s.cfg.Dir, firstFile+1, diskNames...)
		if err != nil {
			return err
		}
		args = append(args, "--fs-restore-image-path="+links)
	}
	files := append([]*os.File{s.image}, s.plan.disk...)
	if err := s.d.runsc(ctx, s.cfg.Dir, s.stdio, files, append(args, string(s.cfg.Instance))...); err != nil {
		return err
	}
	return errors.Join(s.closeStdio(), s.closeImage())
}

// pidName is where runsc writes the sandbox's pid.
const pidName = "pid"

// take makes a Machine of the sandbox.
func (s *starting) take(context.Context) error {
	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, pidName))
	if err != nil {
		return err
	}
	if s.rec.PID, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
		return fmt.Errorf("bad pid: %w", err)
	}
	f, err := process.Open(s.rec.PID)
	if err != nil {
		return err
	}
	st, err := process.ReadStat(s.rec.PID)
	if err == nil {
		s.rec.StartTime = st.StartTime
		s.rec.BootID, err = process.BootID()
	}
	if err == nil {
		err = machinefile.Write(s.cfg.Dir, s.rec)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.m = newMachine(s.d, s.cfg, s.rec, f, s.console)
	s.m.watch()
	// From here on the machine's end closes the console.
	s.undo = nil
	s.onFail(s.plan.close)
	s.onFail(s.clearCgroup)
	s.onFail(s.clean)
	s.onFail(s.m.destroy)
	return nil
}

func (s *starting) makeCard(context.Context) error { return makeCard(s.m.pidfd) }

// handOver gives the machine the checkpoint that its first Resume restores, and its record.
func (s *starting) handOver(context.Context) error {
	if err := s.m.Err(); err != nil {
		return err
	}
	s.m.mu.Lock()
	s.m.rec, s.m.memory = s.rec, s.plan.memory
	s.m.mu.Unlock()
	s.plan.memory = nil
	return errors.Join(s.plan.close(), machinefile.Write(s.cfg.Dir, s.rec))
}

// resize gives the sandbox its memory and CPUs, which the guest sees from its first instruction on.
func (s *starting) resize(ctx context.Context) error {
	return s.m.resize(ctx, resizeArgs{MemoryBytes: bytesOf(s.rec.MemoryMB), Cores: uint(s.rec.VCPUs)})
}

func (s *starting) clearCgroup() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return s.d.cgroups.Clear(ctx, string(s.cfg.Instance))
}

// oomScore makes the kernel choose a machine before the server when memory is short.
const oomScore = 500

// confine puts the sandbox's processes into a cgroup of their own, before the guest runs. Those that
// come later are children of these.
func (s *starting) confine(context.Context) error {
	pids, err := s.m.family()
	if err != nil {
		return err
	}
	shape := s.cfg.Shape
	shape.MemoryMB = s.rec.MemoryMB
	for _, pid := range pids { // those that come later have it from these
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(oomScore)), 0); err != nil {
			return fmt.Errorf("set the machine's oom score: %w", err)
		}
	}
	if err := s.d.cgroups.Place(string(s.cfg.Instance), shape, pids...); err != nil {
		s.d.log.Warn("the machine runs without all of its limits", "instance", s.cfg.Instance, "err", err)
	}
	if s.cfg.Background {
		return s.m.SetBackground(true)
	}
	return nil
}

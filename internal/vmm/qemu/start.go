package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/console"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// start is one machine on its way up. Its steps are in order; each pushes what
// undoes it.
type start struct {
	d   *Driver
	cfg vmm.Config

	// manifest is that of the snapshot whose disk, or whose memory too when incoming,
	// the machine starts from; nil without one.
	manifest *snapshot.Manifest
	incoming bool
	rec      record
	cmd      commandLine
	memory   *os.File // boot memory; the driver's when base is set
	base     *golden  // nil for a golden machine
	give     fdTable  // what QEMU inherits
	console  *console.Console
	m        *Machine
	// undead says that the process could not be ended: its uid stays taken.
	undead bool
	// probing starts a machine to see whether a kernel boots: it is chatty.
	probing bool

	undo []func() error
}

type step struct {
	name string
	run  func(*start, context.Context) error
}

// coldSteps and restoreSteps are all that starts a machine.
func coldSteps() []step {
	return []step{
		{"plan", (*start).plan},
		{"reserve", (*start).reserve},
		{"attach disk", (*start).attachDisk},
		{"attach memory", (*start).attachMemory},
		{"attach sockets", (*start).attachSockets},
		{"launch", (*start).launch},
		{"connect", (*start).connect},
	}
}

func restoreSteps() []step {
	return append(append([]step{{"check snapshot", (*start).checkSnapshot}}, coldSteps()...),
		step{"place memory", (*start).placeMemory},
		step{"load device state", (*start).loadState},
	)
}

// Start implements vmm.Driver.
func (d *Driver) Start(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	steps := coldSteps()
	if c.Source.Snapshot != "" {
		steps = restoreSteps()
	}
	accel, err := d.decideAccel(ctx, c.Source.Image)
	if err != nil {
		return nil, err
	}
	m, err := d.start(ctx, c, accel, false, steps)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (d *Driver) start(ctx context.Context, c vmm.Config, accel string, probing bool, steps []step) (*Machine, error) {
	s := d.newStart(c, accel)
	s.probing = probing
	if err := s.run(ctx, steps); err != nil {
		return nil, err
	}
	return s.m, nil
}

func (d *Driver) newStart(c vmm.Config, accel string) *start {
	c.Dir = filepath.Clean(c.Dir)
	s := &start{d: d, cfg: c}
	s.rec = record{
		Owner:    machinefile.Owner{Driver: driverName},
		Instance: c.Instance, CreatedAt: time.Now().UTC(), Golden: c.Golden,
		Accel: accel, CPUModel: d.cpuModel(accel), QEMUVersion: d.version.now().String(), VCPUs: c.Shape.VCPUs,
	}
	return s
}

// fail undoes the steps that were taken. Only the directory itself stays.
func (s *start) fail(step string, err error) error {
	err = fmt.Errorf("start machine %s: %s: %w", s.cfg.Instance, step, err)
	var exit *ExitError
	if s.m != nil && !errors.As(err, &exit) {
		select {
		case <-s.m.Done():
			err = fmt.Errorf("%w: %w", err, s.m.Err())
		default:
		}
	}
	for i := len(s.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, s.undo[i]())
	}
	entries, rerr := os.ReadDir(s.cfg.Dir)
	err = errors.Join(err, rerr)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.cfg.Dir, e.Name())))
	}
	// By now the process has ended and all that it said has been read.
	if s.console != nil {
		if text := s.console.String(); text != "" {
			return &vmm.StartError{Err: err, Console: text}
		}
	}
	return err
}

func (s *start) onFail(f func() error) { s.undo = append(s.undo, f) }

// checkSnapshot refuses a snapshot that does not fit this host or this request.
func (s *start) checkSnapshot(context.Context) error {
	if s.cfg.Golden {
		return errors.New("only a cold machine can be golden")
	}
	m, err := snapshot.Load(s.cfg.Source.Snapshot)
	if err != nil {
		return err
	}
	s.manifest, s.incoming = m, !m.DiskOnly() && !s.cfg.Source.DiskOnly
	if !s.incoming {
		return s.d.fitsDisk(m, s.cfg.Source.Image.Hash)
	}
	return s.d.fits(m, s.rec, s.cfg.Source.Image.Hash)
}

func (s *start) plan(context.Context) error {
	v := s.cfg.Shape.VCPUs
	if v < 1 || v > 64 {
		return sandbox.Errorf(sandbox.Invalid, "bad_vcpus", "a machine cannot have %d vCPUs", v)
	}
	var err error
	if s.manifest != nil {
		s.rec.DiskMB = s.manifest.DiskMB
	} else if s.rec.DiskMB, err = diskMB(s.cfg.Source.Image.RootExt4, s.cfg.Shape.DiskMB); err != nil {
		return err
	}
	s.rec.BootMB = s.cfg.Shape.MemoryMB / plugBlockMB * plugBlockMB
	if s.incoming {
		s.rec.PlugMB, s.rec.BootMB = s.manifest.PlugMB, bootMBOr(s.manifest.BootMB)
	}
	// A manifest is a file, too.
	if b := s.rec.BootMB; b < sandbox.MinMemoryMB || b > sandbox.MaxMemoryMB {
		return sandbox.Errorf(sandbox.Invalid, "bad_memory", "a machine cannot boot with %d MB", b)
	}
	s.cmd = commandLine{
		Binary: s.d.binary, Name: string(s.cfg.Instance), Accel: s.rec.Accel, CPUModel: s.rec.CPUModel,
		VCPUs: v, BootMB: s.rec.BootMB, Incoming: s.incoming, MemoryShared: s.cfg.Golden, MemoryReadOnly: s.d.version.now().atLeast(8, 2),
	}
	if s.incoming {
		return nil // its kernel is in its memory, and it never boots again
	}
	s.cmd.Append = kernelAppend(!s.probing)
	for _, f := range []struct {
		path string
		arg  *string
	}{{s.cfg.Source.Image.Kernel, &s.cmd.Kernel}, {s.cfg.Source.Image.Initrd, &s.cmd.Initrd}} {
		file, err := os.Open(f.path)
		if err != nil {
			return fmt.Errorf("open the guest's kernel: %w", err)
		}
		*f.arg = fdPath(s.give.add(file))
	}
	return nil
}

// reserve takes a uid and writes the record, before anything exists that
// somebody would have to clean up.
func (s *start) reserve(context.Context) error {
	uid, err := s.d.uids.take(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.onFail(func() error {
		if s.undead {
			return nil // Remove tries again, and finds the process by its uid
		}
		return s.d.uids.free(uid, s.cfg.Dir)
	})
	s.rec.UID = uid
	return machinefile.Write(s.cfg.Dir, s.rec)
}

// attachDisk gives the machine its overlay on the image and on the snapshot's layers.
func (s *start) attachDisk(context.Context) error {
	args, files, err := s.makeDisk()
	if err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = s.give.add(f)
	}
	for i := range args {
		for k := range args[i].FDs {
			args[i].FDs[k] = fds[args[i].FDs[k]]
		}
	}
	s.cmd.Disks = args
	return nil
}

// makeDisk makes the machine's layers, and opens the chain.
func (s *start) makeDisk() ([]diskArg, []*os.File, error) {
	if s.manifest != nil {
		if err := s.d.linkLayers(s.cfg.Source.Snapshot, s.cfg.Dir, s.manifest.Layers); err != nil {
			return nil, nil, err
		}
		for i, l := range s.manifest.Layers {
			l.Name = layerName(i)
			s.rec.Layers = append(s.rec.Layers, l)
		}
	}
	top := len(s.rec.Layers)
	if err := createOverlay(filepath.Join(s.cfg.Dir, layerName(top)), int64(s.rec.DiskMB)<<20); err != nil {
		return nil, nil, err
	}
	s.rec.Layers = withTop(s.rec.Layers, top)
	return openChain(s.cfg.Source.Image.RootExt4, s.cfg.Dir, len(s.rec.Layers))
}

// attachMemory gives a golden machine memory of its own that it writes, and
// any other one a private mapping of memory that nobody can write.
func (s *start) attachMemory(ctx context.Context) error {
	if s.cfg.Golden {
		mem, err := newMemory(newGoldenMemory, s.rec.BootMB)
		if err != nil {
			return err
		}
		s.memory = mem
		s.onFail(func() error {
			if s.m != nil {
				return nil // it is the machine's
			}
			return mem.Close()
		})
		return s.giveMemory()
	}
	dir, file := s.cfg.Source.Snapshot, (*snapshot.File)(nil)
	if s.incoming {
		file = s.manifest.Memory
		s.rec.BaseDir = dir
		s.rec.SharedLayers = len(s.manifest.Layers)
	}
	if s.incoming && s.manifest.Base != nil {
		var err error
		if dir, file, err = s.resolveBase(); err != nil {
			return err
		}
		s.rec.BaseDir = dir
	}
	base, err := s.d.goldens.get(ctx, dir, file, s.rec.BootMB)
	if err != nil {
		return err
	}
	s.onFail(func() error {
		if s.m == nil { // else it is the machine's
			s.d.goldens.release(base)
		}
		return nil
	})
	s.base, s.memory = base, base.file
	if file != nil {
		s.rec.BaseMemory = file.SHA256
	}
	return s.giveMemory()
}

func (s *start) giveMemory() error {
	dup, err := dupFile(s.memory)
	if err != nil {
		return err
	}
	s.cmd.MemoryFD = s.give.add(dup)
	return nil
}

// resolveBase finds the base of a delta and checks that it is the one.
func (s *start) resolveBase() (string, *snapshot.File, error) {
	want := s.manifest.Base
	if want.Dir == "" { // a cold machine's: empty memory
		s.rec.SharedLayers = 0
		return "", nil, nil
	}
	dir := want.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(s.cfg.Source.Image.RootExt4), dir)
	}
	base, err := snapshot.Load(dir)
	if err != nil {
		return "", nil, fmt.Errorf("base of the snapshot: %w", err)
	}
	if base.Memory == nil || base.Memory.SHA256 != want.MemorySHA256 {
		return "", nil, mismatch("base memory", want.MemorySHA256, "another golden snapshot")
	}
	s.rec.SharedLayers = len(base.Layers)
	return dir, base.Memory, nil
}

func (s *start) attachSockets(context.Context) error {
	c, err := console.Open(s.cfg.Dir, s.d.cfg.ConsoleBytes)
	if err != nil {
		return err
	}
	s.console = c
	s.onFail(func() error {
		if s.m != nil {
			return nil // it ends with the machine
		}
		return c.Abandon()
	})
	w, err := console.WriterFor(s.cfg.Dir, console.GuestName)
	if err != nil {
		return err
	}
	s.cmd.ConsoleFD = s.give.add(w)
	for name, fd := range map[string]*int{qmpName: &s.cmd.QMPFD, agentName: &s.cmd.AgentFD, networkName: &s.cmd.NetworkFD} {
		l, err := listenFile(filepath.Join(s.cfg.Dir, name))
		if err != nil {
			return err
		}
		*fd = s.give.add(l)
	}
	return nil
}

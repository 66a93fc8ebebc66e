package worker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// Request says what to boot and who it is to be.
type Request struct {
	Instance sandbox.InstanceID
	Template string
	Shape    sandbox.Shape
	Policy   network.Policy
	Identity Identity

	// Snapshot, when set, is what to start from instead of the template's golden
	// snapshot. TemplateHash names the build that it stands on.
	Snapshot     sandbox.SnapshotID
	TemplateHash string
	// DiskOnly boots from the snapshot's disk; ColdFallback does so when its memory
	// does not fit this host or is damaged.
	DiskOnly, ColdFallback bool
	// KeepSeed leaves the state of the interpreter's random number generators.
	KeepSeed bool
}

// anyHostname is the name of machines that belong to nobody. It is as long as the
// names of sandboxes, so that a guest changes its files in place: writing new ones
// takes most of an identity's time.
const anyHostname = "sbx-000000000000"

// Identity is what makes one machine different from its siblings.
type Identity struct {
	Hostname  string
	MachineID string // 32 hex digits
	Env       map[string]string
}

// IdentityOf is the identity of a sandbox, which it keeps over all its lives. The
// host name is enough of the id to recognise it by; the machine id is hashed, because
// machine-id(5) must not tell other identifiers.
func IdentityOf(id sandbox.ID, env map[string]string) Identity {
	sum := sha256.Sum256([]byte("ramet machine-id " + string(id)))
	return Identity{Hostname: "sbx-" + string(id[:12]), MachineID: hex.EncodeToString(sum[:16]), Env: env}
}

// plan is a Request with what it starts from.
type plan struct {
	Request
	template Template
	snapshot string     // directory; empty: cold
	saving   vmm.Saving // of an ephemeral snapshot
	golden   bool       // the machine's memory is to become a golden snapshot
	// background boots give way to others for CPU time.
	background bool
	// unused: the snapshot holds nothing of a user.
	unused bool
}

// boot is a boot in progress.
type boot struct {
	w *Worker
	plan
	inst  *Instance
	agent *guest.Client
	// waiting is a process that was started ahead; nil without one.
	waiting *waiter
	// undo releases what the steps so far have taken, last in first out.
	undo []func(context.Context) error
}

// step is one named step of a boot. It pushes its undo before it returns an error
// for anything that it has taken and kept.
type step struct {
	name string
	run  func(*boot, context.Context) error
}

// Steps that wait for the guest; the last two only a golden snapshot's making has.
const (
	stepAgent    = "await_agent"
	stepIdentity = "identity"
	stepWarmUp   = "warm_up"
	stepFreeze   = "freeze"
)

// cold is the boot of a machine from its disk image alone.
func cold() []step {
	return []step{
		{"reserve", (*boot).reserve},
		{"start_vmm", (*boot).startVMM},
		{"attach_network", (*boot).attachNetwork},
		{"resume", (*boot).resume},
		{stepAgent, (*boot).awaitAgent},
		{stepIdentity, (*boot).identityAndMemory},
	}
}

// restore is the boot of a machine from a snapshot. A restored machine is
// grown to its size before it runs (disk) and while its identity is made (memory).
func restore() []step {
	return []step{
		{"reserve", (*boot).reserve},
		{"start_vmm", (*boot).startVMM},
		{"attach_network", (*boot).attachNetwork},
		{"grow_disk", (*boot).growDisk},
		{"resume", (*boot).resume},
		{stepAgent, (*boot).awaitAgent},
		{stepIdentity, (*boot).identityAndMemory},
	}
}

// boot runs a plan's steps. It is the only way a machine comes to life.
func (w *Worker) boot(ctx context.Context, p plan) (*Instance, error) {
	steps, timeout := restore(), w.cfg.BootTimeout
	if p.snapshot == "" || p.DiskOnly {
		steps, timeout = cold(), w.cfg.ColdTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	waiting := w.waiting.take(p)
	if waiting != nil {
		p.Instance = waiting.id
	}
	w.setBooted(p.Instance, true)
	b := &boot{w: w, plan: p, waiting: waiting, inst: w.newInstance(p.Instance, p.template)}
	b.inst.onFreed = func() { w.setBooted(p.Instance, false) }
	begin := time.Now()
	for _, s := range steps {
		t := time.Now()
		if err := s.run(b, ctx); err != nil {
			return nil, b.fail(ctx, s.name, err)
		}
		b.inst.Steps = append(b.inst.Steps, sandbox.StepTime{Name: s.name, Took: time.Since(t)})
	}
	w.log.Debug("booted", "instance", p.Instance, "template", p.template.Name, "cold", p.snapshot == "", "took", time.Since(begin))
	return b.inst, nil
}

// fail undoes the boot and makes its error, with the console's tail: a guest
// that does not come up says why only there.
func (b *boot) fail(ctx context.Context, name string, err error) error {
	var console string
	var start *vmm.StartError
	if errors.As(err, &start) {
		console = start.Console
	} else if m := b.inst.machine; m != nil {
		console = m.Console()
	}
	level := slog.LevelWarn
	if errors.Is(ctx.Err(), context.Canceled) {
		level = slog.LevelInfo // the caller does not want it any more
	}
	// Here and not above: what users are told leaves most of it out.
	b.w.log.Log(ctx, level, "boot failed", "instance", b.Instance, "step", name, "err", err, "console", logTail(console))
	defer b.inst.onFreed()
	failed := bootError(name, fmt.Errorf("boot step %s of instance %s: %w", name, b.Instance, err), console)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	for n := len(b.undo) - 1; n >= 0; n-- {
		if uerr := b.undo[n](ctx); uerr != nil {
			b.w.log.Error("undo a failed boot", "instance", b.Instance, "step", name, "err", uerr)
		}
	}
	return failed
}

func (b *boot) onFail(f func(context.Context) error) { b.undo = append(b.undo, f) }

func (b *boot) reserve(ctx context.Context) error {
	if b.waiting != nil {
		b.onFail(func(context.Context) error { return b.w.waiting.free(b.waiting) })
		return nil
	}
	if err := os.Mkdir(b.inst.dir, 0o700); err != nil {
		return fmt.Errorf("make the instance's directory: %w", err)
	}
	b.onFail(func(ctx context.Context) error { return b.w.cfg.Driver.Remove(ctx, b.inst.dir) })
	return nil
}

func (b *boot) startVMM(ctx context.Context) error {
	m, err := b.startMachine(ctx, vmm.Config{
		Instance: b.Instance,
		Dir:      b.inst.dir,
		Source:   vmm.Source{Image: b.template.Image, Snapshot: b.snapshot, Saving: b.saving, DiskOnly: b.DiskOnly},
		Shape:    b.Shape,
		Golden:   b.golden,

		Background: b.background,
	})
	if err != nil {
		return err
	}
	b.inst.machine = m
	b.onFail(m.Kill)
	return nil
}

// startMachine starts it in the process that waits, if that fits.
func (b *boot) startMachine(ctx context.Context, c vmm.Config) (vmm.Machine, error) {
	if b.waiting == nil {
		return b.w.cfg.Driver.Start(ctx, c)
	}
	m, err := b.waiting.process.Start(ctx, c)
	if !errors.Is(err, vmm.ErrNotPrepared) {
		return m, err
	}
	b.w.log.Debug("a waiting process does not fit", "instance", b.Instance, "err", err)
	if err := b.w.waiting.free(b.waiting); err != nil {
		return nil, err
	}
	if err := os.Mkdir(b.inst.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the instance's directory: %w", err)
	}
	return b.w.cfg.Driver.Start(ctx, c)
}

func (b *boot) attachNetwork(ctx context.Context) error {
	if err := b.w.attach(ctx, b.inst, b.Policy); err != nil {
		return err
	}
	b.onFail(func(context.Context) error { return b.inst.gateway.Close() })
	return nil
}

// attach makes the gateway of a machine.
func (w *Worker) attach(ctx context.Context, i *Instance, policy network.Policy) error {
	conn, err := i.machine.DialNetwork(ctx)
	if err != nil {
		return err
	}
	g, err := w.cfg.Network.Attach(conn, policy, network.WithName(string(i.ID)))
	if err != nil {
		return err // the stream was the gateway's
	}
	i.gateway, i.policy = g, policy
	return nil
}

func (b *boot) growDisk(ctx context.Context) error {
	if b.Shape.DiskMB <= sandbox.DefaultDiskMB {
		return nil
	}
	return b.inst.machine.ResizeDisk(ctx, b.Shape.DiskMB)
}

func (b *boot) resume(ctx context.Context) error { return b.inst.machine.Resume(ctx) }

// awaitAgent connects to the agent. A cold guest takes seconds until its
// agent opens the port; the preamble waits there until it does.
func (b *boot) awaitAgent(ctx context.Context) error {
	ctx, cancel := withCause(ctx, b.inst.machine)
	defer cancel(nil)
	conn, err := b.inst.machine.DialAgent(ctx)
	if err != nil {
		return withEnd(ctx, err)
	}
	client, err := guest.Dial(ctx, conn)
	if err != nil {
		conn.Close()
		return withEnd(ctx, err)
	}
	b.agent = client
	b.inst.setGuest(client)
	b.onFail(func(context.Context) error { b.inst.hangUp(); return nil })
	return nil
}

// withCause returns a context that also ends when the machine does, so that
// nobody waits for an agent that will never come.
func withCause(ctx context.Context, m vmm.Machine) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-m.Done():
			err := m.Err()
			if err == nil {
				err = errors.New("the guest shut down")
			}
			cancel(err)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// endGrace is how long after its connections the end of a machine may be seen.
const endGrace = 500 * time.Millisecond

// withEnd adds to the error of a connection what ended ctx, a context of
// withCause. A machine's connections break a moment before its process is seen
// to have ended, so it waits for that moment.
func withEnd(ctx context.Context, err error) error {
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	case <-grace.C:
		return err
	}
}

func (b *boot) identityAndMemory(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.identity(ctx) })
	g.Go(func() error { return b.inst.machine.ResizeMemory(ctx, b.Shape.MemoryMB) })
	return g.Wait()
}

// identity makes the machine itself: nothing of the user's runs before it is done.
func (b *boot) identity(ctx context.Context) error {
	o := refreshOptions{keepSeed: b.KeepSeed, unused: b.unused}
	if b.unused && !b.golden { // what has been used has it; a golden is shared by all, and outlives this setting
		o.caBundle = b.w.cfg.CABundle
	}
	if b.unused && b.Shape.DiskMB > sandbox.DefaultDiskMB {
		o.growDiskMB = b.Shape.DiskMB
	}
	var err error
	if o.now, err = askTime(ctx, b.agent); err != nil {
		return err
	}
	return b.w.refresh(ctx, b.agent, b.template, b.Identity, o)
}

// refreshOptions is what not every refresh needs.
type refreshOptions struct {
	caBundle   []byte // empty: what the guest trusts stays
	growDiskMB int    // 0: the disk stays
	now        moment // zero: asked at the call
	keepSeed   bool   // leave the interpreter's generators of random numbers as they are
	unused     bool   // no code of a user has ever run in the machine
}

// refresh makes a machine the one of an identity.
func (w *Worker) refresh(ctx context.Context, client *guest.Client, t Template, id Identity, o refreshOptions) error {
	entropy := make([]byte, 256)
	rand.Read(entropy)
	env := maps.Clone(t.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, id.Env)
	if o.now.unix == 0 {
		o.now.unix = time.Now().UnixNano()
	}
	_, err := client.Machine().Refresh(ctx, &agentv1.RefreshRequest{
		UnixNanos: o.now.unix, AtMonotonicNanos: o.now.monotonic,
		Entropy:   entropy,
		Hostname:  id.Hostname,
		MachineId: id.MachineID,
		Env:       env,
		CaBundle:  o.caBundle,
		Reseed:    !o.keepSeed,
		GrowDisk:  o.growDiskMB > 0,
		DiskBytes: uint64(o.growDiskMB) << 20,
		Unused:    o.unused,
	})
	return guest.Error(err)
}

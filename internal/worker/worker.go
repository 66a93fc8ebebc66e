// Package worker runs the machines of this host: it boots them by one
// pipeline (boot.go), makes the golden snapshots that they are restored from
// (golden.go), hands out connections to their agents (instance.go), and frees
// everything that a machine had on the host when it ends.
//
// It knows instances, not sandboxes: which sandbox an instance belongs to,
// and who may use it, is control's business.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// Config is what a Worker needs.
type Config struct {
	// Dir holds one directory for each instance.
	Dir     string
	Driver  vmm.Driver
	Network *network.Network
	// SnapshotDir holds one directory for each snapshot that is kept, on the same filesystem as Dir.
	SnapshotDir string
	// Templates finds the template to boot by its name, Build one of its builds by name and hash.
	Templates func(name string) (Template, error)
	Build     func(name, hash string) (Template, error)
	// CABundle is installed in every guest; PEM, may be empty.
	CABundle []byte
	Log      *slog.Logger
	// Pool is what is kept ready; nothing by default. It needs FreeMemoryMB.
	Pool PoolConfig
	// Waiting is what is started ahead of that; nothing by default.
	Waiting WaitingConfig
	// FreeMemoryMB says how much memory the host could give out now, in MiB.
	FreeMemoryMB func() (int, error)
	// UnpromisedMB, when set, says how much of the memory that may be promised to
	// sandboxes is not, in MiB. The pool keeps within it.
	UnpromisedMB func() (int, error)
	// BootTimeout bounds a whole restore, ColdTimeout a cold boot. Zero: 60 s and 180 s.
	BootTimeout, ColdTimeout time.Duration
	// AgentTimeout bounds reaching an agent that should be there. Zero: 10 s.
	AgentTimeout time.Duration
}

// Template is a built template as the worker sees it.
type Template struct {
	Name  string
	Hash  string
	Dir   string // goldens are kept below it
	Image vmm.Image
	Env   map[string]string // of everything in its guests, below a sandbox's own
	// WarmUp is code that runs before a golden snapshot is saved.
	WarmUp []Code
}

// Code is a run of a warm-up.
type Code struct{ Language, Code string }

// Worker owns the machines of this host.
type Worker struct {
	cfg   Config
	log   *slog.Logger
	exits chan sandbox.MachineExit
	// denials takes what the guests' gateways refuse; what finds it full is dropped.
	denials chan sandbox.EgressDenial
	pool    *pool
	// waiting are processes that were started ahead.
	waiting *waiting

	// life ends when the worker closes; machines do not depend on it.
	life  context.Context
	close context.CancelFunc
	tasks sync.WaitGroup
	// flattens is full while as many disks are flattened as may be at a time.
	flattens chan struct{}

	mu        sync.Mutex
	closing   bool                             // guarded by mu
	instances map[sandbox.InstanceID]*Instance // guarded by mu; those that run
	freeing   map[sandbox.InstanceID]*Instance // guarded by mu; those on their way out
	makings   map[string]*making               // guarded by mu; by directory
	adoptions map[sandbox.InstanceID]*adoption // guarded by mu; machines that do not answer yet
	booted    map[sandbox.InstanceID]bool      // guarded by mu; from their boot until they are freed
}

// errClosing refuses what begins after Close.
var errClosing = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; try again in a moment")

// New makes a worker. Call Adopt before the first Start: an earlier worker may
// have left machines in Dir.
func New(ctx context.Context, cfg Config) (*Worker, error) {
	if cfg.BootTimeout == 0 {
		cfg.BootTimeout = 60 * time.Second
	}
	if cfg.ColdTimeout == 0 {
		cfg.ColdTimeout = 180 * time.Second
	}
	if cfg.AgentTimeout == 0 {
		cfg.AgentTimeout = 10 * time.Second
	}
	// Machines run under uids of their own and reach their directory through
	// this one, so it can be passed through but not listed.
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the instance directory: %w", err)
	}
	// Guests' memory is in there.
	if err := os.MkdirAll(cfg.SnapshotDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the snapshot directory: %w", err)
	}
	if err := removeForks(cfg.SnapshotDir); err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &Worker{
		cfg: cfg, log: cfg.Log, life: life, close: stop,
		exits:     make(chan sandbox.MachineExit, 64),
		denials:   make(chan sandbox.EgressDenial, maxDenials),
		instances: make(map[sandbox.InstanceID]*Instance),
		freeing:   make(map[sandbox.InstanceID]*Instance),
		makings:   make(map[string]*making),
		adoptions: make(map[sandbox.InstanceID]*adoption),
		booted:    make(map[sandbox.InstanceID]bool),
		flattens:  make(chan struct{}, 1),
	}
	w.pool = newPool(w, cfg.Pool)
	w.waiting = newWaiting(w, cfg.Waiting)
	return w, nil
}

// Exits delivers instances that ended by themselves. Their resources are
// already free.
func (w *Worker) Exits() <-chan sandbox.MachineExit { return w.exits }

// Denials delivers what the gateways of instances have refused since their start or
// hand-off. It is a sample: gateways tell of a few a second, and what nobody fetches is dropped.
func (w *Worker) Denials() <-chan sandbox.EgressDenial { return w.denials }

// Instance returns a running instance.
func (w *Worker) Instance(id sandbox.InstanceID) (*Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.instances[id]; ok {
		return i, nil
	}
	if w.adoptions[id] != nil {
		return nil, &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "machine_reconnecting", RetryAfter: adoptRetry,
			Message: "the server has started again and does not reach the sandbox's machine yet; try again in a moment",
		}
	}
	return nil, errGone
}

var errGone = sandbox.Errorf(sandbox.Unavailable, "machine_gone", "the sandbox's machine is not running")

// Alive says whether the machine of an instance runs, also while it does not answer.
func (w *Worker) Alive(id sandbox.InstanceID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.instances[id] != nil || w.adoptions[id] != nil
}

// Count returns the number of running instances.
func (w *Worker) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.instances)
}

// begin counts a call that Close waits for, and cuts short. Call end when it is over.
func (w *Worker) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return nil, nil, errClosing
	}
	w.tasks.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.life, func() { cancel(errClosing) })
	return ctx, func() { stop(); cancel(nil); w.tasks.Done() }, nil
}

// Start makes a machine of the request's template and shape, from the pool if that
// has one, and returns when its agent is ready and it has its identity. The
// instance's ID is the request's, or that of the pool's machine: use the one that is
// returned. The context bounds the call; a failed start leaves nothing.
func (w *Worker) Start(ctx context.Context, req Request) (*Instance, error) {
	ctx, end, err := w.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	defer w.pool.foreground()()
	w.pool.more() // what this sandbox was promised may be in the pool
	if req.Snapshot != "" {
		return w.startFrom(ctx, req)
	}
	asked := time.Now()
	template, err := w.cfg.Templates(req.Template)
	if err != nil {
		return nil, err
	}
	found := sandbox.StepTime{Name: "template", Took: time.Since(asked)}
	k := w.pool.kind(req.Template, req.Shape)
	if k != nil {
		if i, _ := w.fromPool(ctx, k, req, template, true); i != nil {
			i.Steps = append([]sandbox.StepTime{found}, i.Steps...)
			w.enter(i)
			return i, nil
		}
	}
	begin := time.Now()
	i, err := w.restoreGolden(ctx, req, template, false)
	if err != nil {
		w.pool.missed(k, 0)
		return nil, err
	}
	w.pool.missed(k, time.Since(begin))
	i.Steps = append([]sandbox.StepTime{found}, i.Steps...)
	w.enter(i)
	return i, nil
}

// startFrom makes a machine from a snapshot that is kept.
func (w *Worker) startFrom(ctx context.Context, req Request) (*Instance, error) {
	t, err := w.cfg.Build(req.Template, req.TemplateHash)
	if err != nil {
		return nil, err
	}
	p := plan{Request: req, template: t, snapshot: w.snapshotDir(req.Snapshot)}
	i, err := w.boot(ctx, p)
	if err != nil && req.ColdFallback && !p.DiskOnly && badSnapshot(err) && ctx.Err() == nil {
		w.log.Warn("the memory of a snapshot cannot be used; booting from its disk", "instance", req.Instance, "snapshot", req.Snapshot, "err", err)
		p.DiskOnly = true
		because := memoryLost(err)
		if i, err = w.boot(ctx, p); err == nil {
			i.ColdBecause = because
		}
	}
	if err != nil {
		return nil, err
	}
	w.enter(i)
	return i, nil
}

// memoryLost says in one sentence why a snapshot's memory was not used.
func memoryLost(err error) string {
	var known *sandbox.Error
	if errors.As(err, &known) && errors.Is(err, vmm.ErrSnapshotMismatch) {
		return "its memory could not be restored here (" + known.Message + "); it booted from its disk"
	}
	return "its saved memory is damaged; it booted from its disk"
}

// restoreGolden boots from the golden snapshot. One that does not fit this host any
// more (another QEMU), or is damaged, is made anew, once.
func (w *Worker) restoreGolden(ctx context.Context, req Request, t Template, background bool) (*Instance, error) {
	snap, err := w.Golden(ctx, t, req.Shape)
	if err != nil {
		return nil, err
	}
	tried, serr := os.Stat(snap)
	p := plan{Request: req, template: t, snapshot: snap, background: background, unused: true}
	i, err := w.boot(ctx, p)
	if errors.Is(err, vmm.ErrGone) && ctx.Err() == nil {
		// A monitor that crashes as it starts a machine (or was killed by the kernel)
		// takes nothing of a user with it.
		w.log.Warn("a machine ended while it was started; starting another", "instance", req.Instance, "err", err)
		i, err = w.boot(ctx, p)
	}
	if err == nil || ctx.Err() != nil {
		return i, err
	}
	// Another create may have found out first, and taken it from under this one.
	replaced := serr != nil || !goldenIs(snap, tried)
	if !replaced && !badSnapshot(err) {
		return nil, err
	}
	w.log.Warn("the golden snapshot cannot be used; making a new one", "template", t.Name, "shape", kindFor(req.Shape).String(), "err", err)
	if p.snapshot, err = w.goldenBut(ctx, t, req.Shape, tried); err != nil {
		return nil, err
	}
	return w.boot(ctx, p)
}

func goldenIs(dir string, tried os.FileInfo) bool {
	now, err := os.Stat(dir)
	return err == nil && sameGolden(now, tried)
}

// badSnapshot says that a boot failed by its snapshot, and not by the machine.
func badSnapshot(err error) bool {
	var damaged *snapshot.CorruptError
	return errors.Is(err, vmm.ErrSnapshotMismatch) || errors.As(err, &damaged)
}

// enter registers an instance that runs, and watches it. The caller is one that Close waits for.
func (w *Worker) enter(i *Instance) {
	w.mu.Lock()
	w.instances[i.ID] = i
	w.mu.Unlock()
	w.tasks.Go(func() { w.watch(i) })
}

// watch waits for the end of an instance's machine, keeps its network up meanwhile,
// and frees what is left when it ends by itself.
func (w *Worker) watch(i *Instance) {
	lost := w.keepNetwork(w.life, i)
	if lost == nil {
		select {
		case <-i.machine.Done():
		case <-w.life.Done():
			return
		}
	}
	if !w.forget(i) {
		return // Stop is at it
	}
	defer w.freedFinally(i)
	reason := "the sandbox was ended because its network broke down"
	if lost == nil {
		reason = exitReason(i)
		w.log.Error("a machine ended by itself", "instance", i.ID, "reason", reason, "console", logTail(i.machine.Console()))
	} else {
		w.log.Error("a machine has no network any more; ending it", "instance", i.ID, "err", lost)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.life), removeTimeout)
	defer cancel()
	if err := i.free(ctx); err != nil {
		w.log.Error("free a machine that ended", "instance", i.ID, "err", err)
	}
	w.report(sandbox.MachineExit{Instance: i.ID, Reason: reason})
}

// report tells of a machine that ended. When the worker closes first, the next
// Adopt does not find it.
func (w *Worker) report(e sandbox.MachineExit) {
	select {
	case w.exits <- e:
	case <-w.life.Done():
	}
}

func exitReason(i *Instance) string {
	if err := i.machine.Err(); err != nil {
		return "the sandbox's machine ended by itself: " + err.Error()
	}
	return "the sandbox's machine shut itself down"
}

// forget takes i out of the registry and says whether it was there; then the
// caller frees it.
func (w *Worker) forget(i *Instance) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.instances[i.ID] != i {
		return false
	}
	delete(w.instances, i.ID)
	w.freeing[i.ID] = i
	return true
}

func (w *Worker) freedFinally(i *Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.freeing, i.ID)
}

const removeTimeout = 30 * time.Second

// Stop ends an instance and returns when all that it had is free, whoever frees
// it. An instance that is not running any more is only swept.
func (w *Worker) Stop(ctx context.Context, id sandbox.InstanceID) error {
	w.cancelAdoption(id)
	w.mu.Lock()
	i, leaving := w.instances[id], w.freeing[id]
	w.mu.Unlock()
	if i != nil && w.forget(i) {
		defer w.freedFinally(i)
		return i.free(ctx)
	}
	if i != nil {
		leaving = i // somebody else was faster
	}
	if leaving != nil {
		select {
		case <-leaving.freed:
		case <-ctx.Done():
			return fmt.Errorf("stop instance %s: %w", id, context.Cause(ctx))
		}
	}
	// Whatever may be left.
	return w.cfg.Driver.Remove(ctx, w.dir(id))
}

func (w *Worker) dir(id sandbox.InstanceID) string { return filepath.Join(w.cfg.Dir, string(id)) }

// Close lets go of the machines, which run on until another worker adopts them.
// Those of the pool belong to nobody, and are ended. It ends what is under way,
// and waits for all of it.
func (w *Worker) Close() error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.close()
	w.tasks.Wait()
	w.mu.Lock()
	left := make([]*Instance, 0, len(w.instances))
	for _, i := range w.instances {
		left = append(left, i)
	}
	clear(w.instances)
	w.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	errs := []error{w.pool.drain(ctx), w.waiting.drain()}
	for _, i := range left {
		errs = append(errs, i.release())
	}
	return errors.Join(errs...)
}

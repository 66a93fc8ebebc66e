// Package worker runs the machines of this host: it boots them by one
// pipeline (boot.go), makes the golden snapshots that they are restored from
// (golden.go), hands out connections to their agents (instance.go), takes over
// those that an earlier process left running (adopt.go), keeps some ready before
// anybody asks (pool.go, refill.go, handoff.go), and frees everything that a
// machine had on the host when it ends.
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

	"golang.org/x/sync/singleflight"

	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// Config is what a Worker needs.
type Config struct {
	// Dir holds one directory for each instance.
	Dir     string
	Driver  vmm.Driver
	Network *network.Network
	// Templates finds the template to boot by its name.
	Templates func(name string) (Template, error)
	// CABundle is installed in every guest; PEM, may be empty.
	CABundle []byte
	Log      *slog.Logger
	// Pool is what is kept ready; nothing by default. It needs FreeMemoryMB.
	Pool PoolConfig
	// FreeMemoryMB says how much memory the host could give out now, in MiB.
	FreeMemoryMB func() (int, error)
	// BootTimeout bounds a whole restore, ColdTimeout a cold boot. Zero: 60 s and 180 s.
	BootTimeout, ColdTimeout time.Duration
}

// Template is a built template as the worker sees it.
type Template struct {
	Name  string
	Hash  string
	Dir   string // goldens are kept below it
	Image vmm.Image
	Env   map[string]string // of everything in its guests, below a sandbox's own
}

// Worker owns the machines of this host.
type Worker struct {
	cfg    Config
	log    *slog.Logger
	golden singleflight.Group
	exits  chan sandbox.MachineExit
	pool   *pool

	// life ends when the worker closes; machines do not depend on it.
	life  context.Context
	close context.CancelFunc
	tasks sync.WaitGroup

	mu        sync.Mutex
	closing   bool                             // guarded by mu
	instances map[sandbox.InstanceID]*Instance // guarded by mu
	adoptions map[sandbox.InstanceID]*adoption // guarded by mu; machines that do not answer yet
}

// New makes a worker. Call Adopt before the first Start: an earlier worker may
// have left machines in Dir.
func New(ctx context.Context, cfg Config) (*Worker, error) {
	if cfg.BootTimeout == 0 {
		cfg.BootTimeout = 60 * time.Second
	}
	if cfg.ColdTimeout == 0 {
		cfg.ColdTimeout = 180 * time.Second
	}
	// Machines run under uids of their own and reach their directory through
	// this one, so it can be passed through but not listed.
	if err := os.MkdirAll(cfg.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the instance directory: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &Worker{
		cfg: cfg, log: cfg.Log, life: life, close: stop,
		exits:     make(chan sandbox.MachineExit, 64),
		instances: make(map[sandbox.InstanceID]*Instance),
		adoptions: make(map[sandbox.InstanceID]*adoption),
	}
	w.pool = newPool(w, cfg.Pool)
	return w, nil
}

// errClosing is what a worker says that Close has been called on.
var errClosing = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; try again in a moment")

// begin registers work that Close waits for; when it fails the work must not start.
func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return errClosing
	}
	w.tasks.Add(1)
	return nil
}

// Exits delivers instances that ended by themselves. Their resources are
// already free.
func (w *Worker) Exits() <-chan sandbox.MachineExit { return w.exits }

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
	return nil, sandbox.Errorf(sandbox.Unavailable, "machine_gone", "the sandbox's machine is not running")
}

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

// Start makes a machine of the request's template and shape, from the pool if that
// has one, and returns when its agent is ready and it has its identity. The
// instance's ID is the request's, or that of the pool's machine: use the one that is
// returned. The context bounds the call; a failed start leaves nothing.
func (w *Worker) Start(ctx context.Context, req Request) (*Instance, error) {
	defer w.pool.foreground()()
	asked := time.Now()
	template, err := w.cfg.Templates(req.Template)
	if err != nil {
		return nil, err
	}
	found := sandbox.StepTime{Name: "template", Took: time.Since(asked)}
	k := w.pool.kind(req.Template, req.Shape)
	if k != nil {
		if i := w.fromPool(ctx, k, req, template); i != nil {
			i.Steps = append([]sandbox.StepTime{found}, i.Steps...)
			w.enter(i)
			return i, nil
		}
	}
	begin := time.Now()
	i, err := w.restore(ctx, req, template, false)
	if err != nil {
		w.pool.missed(k, 0)
		return nil, err
	}
	w.pool.missed(k, time.Since(begin))
	i.Steps = append([]sandbox.StepTime{found}, i.Steps...)
	w.enter(i)
	return i, nil
}

// restore boots a machine from the golden snapshot of its template.
func (w *Worker) restore(ctx context.Context, req Request, template Template, background bool) (*Instance, error) {
	snapshot, err := w.Golden(ctx, template, req.Shape.VCPUs)
	if err != nil {
		return nil, err
	}
	p := plan{Request: req, template: template, snapshot: snapshot, background: background}
	i, err := w.boot(ctx, p)
	if errors.Is(err, vmm.ErrGone) && ctx.Err() == nil {
		// A monitor that crashes as it starts a machine (or was killed by the kernel)
		// takes nothing of a user with it.
		w.log.Warn("a machine ended while it was started; starting another", "instance", req.Instance, "err", err)
		i, err = w.boot(ctx, p)
	}
	if !errors.Is(err, vmm.ErrSnapshotMismatch) {
		return i, err
	}
	// Another QEMU or another machine shape than when the golden was made.
	w.log.Warn("the golden snapshot does not fit this host any more; making a new one", "template", template.Name, "err", err)
	if err := w.dropGolden(template, req.Shape.VCPUs); err != nil {
		return nil, err
	}
	if p.snapshot, err = w.Golden(ctx, template, req.Shape.VCPUs); err != nil {
		return nil, err
	}
	return w.boot(ctx, p)
}

// enter registers an instance that runs, and watches it.
func (w *Worker) enter(i *Instance) {
	w.mu.Lock()
	w.instances[i.ID] = i
	w.mu.Unlock()
	w.tasks.Go(func() {
		select {
		case <-i.machine.Done():
		case <-w.life.Done():
			return
		}
		if !w.forget(i) {
			return // Stop is at it
		}
		reason := exitReason(i)
		w.log.Error("a machine ended by itself", "instance", i.ID, "reason", reason, "console", i.machine.Console())
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.life), removeTimeout)
		defer cancel()
		if err := i.free(ctx); err != nil {
			w.log.Error("free a machine that ended", "instance", i.ID, "err", err)
		}
		w.report(sandbox.MachineExit{Instance: i.ID, Reason: reason})
	})
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

// forget takes i out of the registry and says whether it was there.
func (w *Worker) forget(i *Instance) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.instances[i.ID] != i {
		return false
	}
	delete(w.instances, i.ID)
	return true
}

const removeTimeout = 30 * time.Second

// Stop ends an instance and returns when all that it had is free. An instance
// that is not running any more is only swept.
func (w *Worker) Stop(ctx context.Context, id sandbox.InstanceID) error {
	w.cancelAdoption(id)
	i, err := w.Instance(id)
	if err != nil || !w.forget(i) {
		return w.cfg.Driver.Remove(ctx, w.dir(id))
	}
	return i.free(ctx)
}

func (w *Worker) dir(id sandbox.InstanceID) string { return filepath.Join(w.cfg.Dir, string(id)) }

// Close lets go of the machines, which run on until another worker adopts them.
// Those of the pool belong to nobody, and are ended.
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
	errs := []error{w.pool.drain(ctx)}
	for _, i := range left {
		errs = append(errs, i.release())
	}
	return errors.Join(errs...)
}

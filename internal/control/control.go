// Package control holds the use cases: create, list, get and delete sandboxes, fork, merge,
// hibernate and checkpoint them, run things in them, reach their files, build templates, keep keys. Every
// surface, such as httpapi, calls it and adds nothing to the rules.
//
// It owns the life of a sandbox as its record tells it. Records are the
// store's; machines are reached by the small interface Machines, templates by
// Templates. An operation that changes a sandbox's state runs on its own context
// with its own deadline: a caller that goes away ends its waiting and, for a
// create, asks for it to be undone, but never leaves half a state.
//
// Start reading at create.go, then delete.go, then operations.go and hibernate.go, then
// supervise.go for what happens without a caller.
package control

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Config is what a Control needs.
type Config struct {
	Store     *store.Store
	Machines  Machines
	Templates Templates
	Log       *slog.Logger
	// Observer, when set, is told what is worth counting.
	Observer Observer
	// Files are those of the data directory that a backup is made of.
	Files store.Files
	// Region and Node are written into every record.
	Region, Node string
	// Isolation says what the machines are worth that would be started now, "" as long as that is
	// not known. Nil: it is only known of each machine that has started.
	Isolation func() sandbox.Isolation
	// HostMemoryMB, when positive, is the memory of the host, and the most that a
	// sandbox may ask for. What of it may be promised says Admission.
	HostMemoryMB int
	// Quota is what a project may use when its own record does not say. Zero: no limit.
	Quota sandbox.Quota
	// Admission says what of the host may be promised.
	Admission Admission

	// IdleTimeout is that of a sandbox whose create does not say. Zero: never.
	IdleTimeout time.Duration
	// Retention is how long what is kept by itself is kept where the project does not say.
	// Zero: for ever.
	Retention sandbox.Retention

	// OperationTimeout bounds a fork, merge, hibernate, wake, checkpoint or restore,
	// BusyTimeout how long one waits for another of the same sandbox. Zero: 10 minutes and 1 minute.
	OperationTimeout, BusyTimeout time.Duration
	// SweepInterval is how often what was missed is looked for. Zero: 30 seconds.
	SweepInterval time.Duration
	// CreateTimeout bounds a whole create, StopTimeout freeing a sandbox. Zero: 8 minutes
	// (the first use of a vCPU count makes a snapshot, cold) and 1 minute.
	CreateTimeout, StopTimeout time.Duration
	// Builtin names the templates that can be built by their name alone: a create from one
	// that is not built begins its build. Aliases are other names of templates.
	Builtin []string
	Aliases map[string]string
	// GuestTimeout bounds a short call to a guest. Zero: 10 seconds.
	GuestTimeout time.Duration
	// KillDelay is how long a run whose caller went away may take to end after
	// SIGINT, before SIGKILL. Zero: 5 seconds.
	KillDelay time.Duration
	// DenialWindow is how long equal denials of a guest's network are counted until they
	// become one event. Zero: 10 seconds.
	DenialWindow time.Duration
	// KeepStopped and KeepEvents are how long the records of stopped and failed
	// sandboxes and the events are kept. Zero: 7 and 30 days.
	KeepStopped, KeepEvents time.Duration
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.OperationTimeout, 10 * time.Minute},
		{&c.BusyTimeout, time.Minute},
		{&c.SweepInterval, sweepInterval},
		{&c.CreateTimeout, 8 * time.Minute},
		{&c.StopTimeout, time.Minute},
		{&c.GuestTimeout, 10 * time.Second},
		{&c.KillDelay, 5 * time.Second},
		{&c.DenialWindow, 10 * time.Second},
		{&c.KeepStopped, 7 * 24 * time.Hour},
		{&c.KeepEvents, 30 * 24 * time.Hour},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
}

// Control is the use cases of one node. It is safe for concurrent use.
type Control struct {
	cfg       Config
	store     *store.Store
	machines  Machines
	templates Templates
	log       *slog.Logger

	// life ends when Close begins. Operations have contexts of their own that
	// derive from it, so that a shutdown cuts them short and they undo themselves.
	life  context.Context
	close context.CancelCauseFunc
	tasks sync.WaitGroup

	calls callsOfKeys
	once  flights
	lives lives
	room  hostRoom
	// applying is full while somebody gives a machine the egress policy of its record.
	// Waiting for it must end with a context, so it is no mutex.
	applying chan struct{}

	mu      sync.Mutex
	closing bool                        // guarded by mu
	creates map[sandbox.ID]*operation   // guarded by mu
	deletes map[sandbox.ID]*operation   // guarded by mu
	builds  map[string]*build           // guarded by mu
	broken  map[string]error            // guarded by mu; templates whose last build failed
	ops     map[sandbox.ID]*operation   // guarded by mu
	claims  map[<-chan struct{}]bool    // guarded by mu; each is closed when its claim has ended
	wakes   map[sandbox.ID]*waking      // guarded by mu
	pins    map[sandbox.SnapshotID]*pin // guarded by mu

	// standing orders creates on a template against its removal: creates read-lock it
	// while they check the template and enter their record.
	standing sync.RWMutex
}

// operation is a change of a sandbox under way.
type operation struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error              // set before done is closed
	steps  []sandbox.StepTime // of a delete; set before done is closed
	on     []sandbox.ID       // that it excludes other operations on
}

// errClosing is the cause of contexts that end because the server stops.
var errClosing = sandbox.Errorf(sandbox.Unavailable, "shutting_down", "the server is shutting down; try again in a moment")

// New makes a Control and settles what an earlier process left: sandboxes whose
// machine is gone become failed, operations that were cut short are undone or
// finished. From then on it supervises until Close.
func New(ctx context.Context, cfg Config) (*Control, error) {
	cfg.setDefaults()
	if cfg.Observer == nil {
		cfg.Observer = blind{}
	}
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Control{
		cfg: cfg, store: cfg.Store, machines: cfg.Machines, templates: cfg.Templates, log: cfg.Log,
		life: life, close: stop,
		creates: make(map[sandbox.ID]*operation),
		deletes: make(map[sandbox.ID]*operation),
		builds:  make(map[string]*build),
		broken:  make(map[string]error),
		ops:     make(map[sandbox.ID]*operation),
		claims:  make(map[<-chan struct{}]bool),
		wakes:   make(map[sandbox.ID]*waking),
		pins:    make(map[sandbox.SnapshotID]*pin),

		applying: make(chan struct{}, 1),
	}
	c.room.cfg = cfg.Admission
	c.lives.init()
	if err := c.recover(ctx); err != nil {
		stop(err)
		return nil, err
	}
	c.tasks.Go(c.watchExits)
	c.tasks.Go(c.watchDenials)
	c.tasks.Go(c.sweepLoop)
	c.tasks.Go(c.expireLoop)
	return c, nil
}

// Close ends supervision and every operation under way, and waits for them, at
// most until ctx ends. Creates are undone; machines that run go on.
func (c *Control) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.close(errClosing)
	done := make(chan struct{})
	go func() { // ends with the tasks, which all have deadlines
		c.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// spawn runs f as a task that Close waits for. It refuses when Close has begun.
func (c *Control) spawn(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spawnLocked(f)
}

func (c *Control) spawnLocked(f func()) error {
	if c.closing {
		return errClosing
	}
	c.tasks.Go(f)
	return nil
}

// cleanup returns a context for undoing and freeing: nothing but its deadline
// ends it, not even a shutdown.
func (c *Control) cleanup() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.life), c.cfg.StopTimeout)
}

// Get returns a sandbox of a project.
func (c *Control) Get(ctx context.Context, project string, id sandbox.ID) (sandbox.Sandbox, error) {
	return c.store.Get(ctx, project, id)
}

// OfTraffic returns the sandbox that a connection to its ports names, of whatever project.
// Whoever calls it lets nobody in who has no token of the sandbox.
func (c *Control) OfTraffic(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	return c.store.OfTraffic(ctx, id)
}

// LiveForTraffic lists the sandboxes of this node whose ports can be reached, for links that
// name none but are signed with a token of one.
func (c *Control) LiveForTraffic(ctx context.Context) ([]sandbox.Sandbox, error) {
	list, err := c.store.OfNode(ctx, c.cfg.Node)
	return slices.DeleteFunc(list, func(sb sandbox.Sandbox) bool {
		return sb.State != sandbox.Running && !(sleeps(sb.State) && !sb.Deadline.ManualWake)
	}), err
}

// ListOptions selects a page of sandboxes, Position is a place between pages.
type (
	ListOptions = store.ListOptions
	Position    = store.Position
)

// List returns a page of a project's sandboxes, newest first, and whether there are more.
func (c *Control) List(ctx context.Context, project string, o ListOptions) ([]sandbox.Sandbox, bool, error) {
	switch sandbox.State(o.State) {
	case "", "any", sandbox.Creating, sandbox.Running, sandbox.Hibernating, sandbox.Hibernated,
		sandbox.Waking, sandbox.Stopping, sandbox.Stopped, sandbox.Failed:
		return c.store.List(ctx, project, o)
	}
	return nil, false, sandbox.Errorf(sandbox.Invalid, "invalid_status",
		"status %q does not exist; use creating, running, hibernating, hibernated, waking, stopping, stopped, failed or any", o.State)
}

// isConflict says that a transition lost a race: the record was in another state.
func isConflict(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Kind == sandbox.Conflict
}

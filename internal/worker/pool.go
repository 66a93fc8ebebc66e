package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/sandbox"
)

// PoolConfig is what is kept ready.
type PoolConfig struct {
	// Size is how many machines of each kind are kept. Negative: as free memory
	// allows. Zero: no pool.
	Size  int
	Kinds []PoolKind
	// KeepWarm is how long a machine waits before it is used again, so that the host
	// does not take its pages away. Zero: two minutes.
	KeepWarm time.Duration
}

// PoolKind is a template and shape that machines are kept ready for.
type PoolKind struct {
	Template string
	Shape    sandbox.Shape
}

// PoolAuto as a Size lets free memory decide.
const PoolAuto = -1

const (
	// autoPoolMax bounds a pool whose size free memory decides, which takes at
	// most a quarter of it.
	autoPoolMax = 32
	// warmCostMB is what a warm machine takes of the host until it is used,
	// on the safe side: about 60 MB, and as much again of translated code.
	warmCostMB = 128
	// keepFreeMB is the host memory that the pool leaves alone. When there is
	// less, it gives machines back. Of what is promised to sandboxes it takes nothing:
	// a machine that is being made at that moment is within the server's reserve.
	keepFreeMB = 1024

	poolCheck = 10 * time.Second // between looks at memory and at what is stale
	// keepWarm is the default of PoolConfig.KeepWarm. A pool of 32 takes about 2 % of
	// a CPU with it, under emulation.
	keepWarm = 2 * time.Minute
	// keepWarmTimeout bounds the use of one machine, at a low priority on a busy host.
	keepWarmTimeout = 30 * time.Second
	// A refill gives way to creates: while the pool is at least half full, until
	// there has been none for quietFor, at most for quietWait; otherwise only to
	// those under way, at most for quietFor.
	quietFor  = 200 * time.Millisecond
	quietWait = 2 * time.Second
	// warmRetry is the pause after a machine that could not be warmed; it doubles
	// up to warmRetryMax.
	warmRetry    = time.Second
	warmRetryMax = time.Minute
	// drainParallel is how many machines are ended at a time when the pool closes.
	drainParallel = 8
)

// pool keeps machines that have done everything but get an owner: restored,
// grown, warmed up by calls, and paused. One goroutine makes them, one at a time
// and in the background. A machine belongs to the pool, and to its counters,
// until take.
type pool struct {
	w    *Worker
	wake chan struct{} // something may be missing

	keepWarm time.Duration
	mu       sync.Mutex
	kinds    []*poolKind   // guarded by mu; the slice itself never changes
	unpooled uint64        // guarded by mu
	creates  int           // guarded by mu; under way
	quiet    chan struct{} // guarded by mu; closed when creates became 0
	last     time.Time     // guarded by mu; when that was
	started  bool          // guarded by mu
}

// poolKind is the pool of one kind. All of it is guarded by pool.mu.
type poolKind struct {
	PoolKind
	ready []*warm // oldest first
	stats sandbox.Pool
}

// warm is a machine that waits for its owner.
type warm struct {
	inst    *Instance
	sandbox sandbox.ID // whose identity it has
	origin  origin
	used    time.Time     // when it made calls last
	taken   chan struct{} // closed when it leaves the pool
}

// origin is what a machine was made from; with another one it is stale.
type origin struct {
	template string // hash
	golden   goldenID
	monitor  string // version
}

// goldenID tells a golden snapshot from one that was made anew in its place.
type goldenID struct {
	inode uint64
	mtime time.Time
}

// versioned is a driver that knows the version of what it starts.
type versioned interface{ Version() string }

func newPool(w *Worker, cfg PoolConfig) *pool {
	p := &pool{w: w, wake: make(chan struct{}, 1), keepWarm: cfg.KeepWarm}
	if p.keepWarm == 0 {
		p.keepWarm = keepWarm
	}
	if cfg.Size == 0 {
		return p
	}
	for _, k := range cfg.Kinds {
		p.kinds = append(p.kinds, &poolKind{
			PoolKind: k, stats: sandbox.Pool{Template: k.Template, Shape: k.Shape, Size: cfg.Size},
		})
	}
	return p
}

// StartPool begins to fill the pool, once. A server that only prepares does not call it.
func (w *Worker) StartPool() error {
	p := w.pool
	if len(p.kinds) == 0 {
		return nil
	}
	free, err := w.cfg.FreeMemoryMB()
	if err != nil {
		return fmt.Errorf("size the warm pool: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return nil
	}
	p.started = true
	for _, k := range p.kinds {
		if k.stats.Size < 0 {
			k.stats.Size = autoPoolSize(free, len(p.kinds))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return errClosing
	}
	w.tasks.Go(p.run)
	return nil
}

// autoPoolSize is how many machines of each kind a host with free MB keeps.
func autoPoolSize(free, kinds int) int {
	return max(0, min(autoPoolMax, (free-keepFreeMB)/4/warmCostMB/kinds))
}

// Capacity says what is ready and how the pool has done.
func (w *Worker) Capacity() sandbox.Capacity {
	c := sandbox.Capacity{Machines: w.Count(), Waiting: w.waiting.count(), WaitingSize: w.waiting.cfg.Size}
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.Unpooled = p.unpooled
	for _, k := range p.kinds {
		s := k.stats
		s.Size, s.Ready = max(s.Size, 0), len(k.ready)
		c.Pools = append(c.Pools, s)
	}
	return c
}

// foreground says that a create is under way, until done is called. Refills give way to it.
func (p *pool) foreground() (done func()) {
	p.mu.Lock()
	if p.creates == 0 {
		p.quiet = make(chan struct{})
	}
	p.creates++
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.creates--; p.creates == 0 {
			p.last = time.Now()
			close(p.quiet)
		}
	}
}

// kind returns the pool of a template and shape, or nil.
func (p *pool) kind(template string, shape sandbox.Shape) *poolKind {
	for _, k := range p.kinds {
		if k.Template == template && k.Shape == shape {
			return k
		}
	}
	return nil
}

// take removes the oldest machine of a kind that is alive and made from what
// is there now. It returns nil when there is none.
func (p *pool) take(k *poolKind, now origin) *warm {
	for {
		p.mu.Lock()
		if len(k.ready) == 0 {
			p.mu.Unlock()
			return nil
		}
		m := k.ready[0]
		p.removeLocked(k, m)
		p.mu.Unlock()
		p.more()
		why := m.unfit(now)
		if why == "" {
			return m
		}
		p.discard(k, m, why)
	}
}

// removeLocked takes m out of the pool and says whether it was there.
func (p *pool) removeLocked(k *poolKind, m *warm) bool {
	for n := range k.ready {
		if k.ready[n] == m {
			k.ready = append(k.ready[:n:n], k.ready[n+1:]...)
			close(m.taken)
			return true
		}
	}
	return false
}

// unfit says why a machine must not be handed out, or "".
func (m *warm) unfit(now origin) string {
	if m.origin != now {
		return "what it was made from has been replaced"
	}
	return m.dead()
}

// dead says why a machine is of no use to anybody, or "".
func (m *warm) dead() string {
	select {
	case <-m.inst.machine.Done():
		return exitReason(m.inst)
	default:
	}
	m.inst.mu.Lock()
	defer m.inst.mu.Unlock()
	if m.inst.guest == nil || m.inst.guest.Err() != nil {
		return "its agent has hung up"
	}
	if m.inst.gateway.Err() != nil {
		return "its network has broken down"
	}
	return ""
}

// discard frees a machine that has left the pool.
func (p *pool) discard(k *poolKind, m *warm, why string) {
	p.w.log.Info("a warm machine is thrown away", "instance", m.inst.ID, "why", why)
	p.mu.Lock()
	k.stats.Discarded++
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.life), removeTimeout)
	defer cancel()
	if err := m.inst.free(ctx); err != nil {
		p.w.log.Error("free a warm machine", "instance", m.inst.ID, "err", err)
	}
}

// more wakes the goroutine that fills the pool.
func (p *pool) more() {
	select {
	case p.wake <- struct{}{}:
	default: // it has been woken already
	}
}

// originOf is what a machine of a template and shape would be made from now.
func (w *Worker) originOf(t Template, s sandbox.Shape) (origin, error) {
	o := origin{template: t.Hash}
	if v, ok := w.cfg.Driver.(versioned); ok {
		o.monitor = v.Version()
	}
	info, err := os.Stat(w.goldenDir(t, s))
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil // fits no machine
	}
	if err != nil {
		return o, fmt.Errorf("look at the golden snapshot: %w", err)
	}
	o.golden.mtime = info.ModTime()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		o.golden.inode = st.Ino
	}
	return o, nil
}

// drain ends all machines of the pool. The goroutine that fills it has ended.
func (p *pool) drain(ctx context.Context) error {
	p.mu.Lock()
	var left []*warm
	for _, k := range p.kinds {
		left = append(left, k.ready...)
		k.ready = nil
	}
	p.mu.Unlock()
	var all errgroup.Group
	all.SetLimit(drainParallel)
	for _, m := range left {
		all.Go(func() error { return m.inst.free(ctx) })
	}
	return all.Wait()
}

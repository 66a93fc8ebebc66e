package worker

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

func newWarm(i *Instance, id sandbox.ID, o origin) *warm {
	return &warm{inst: i, sandbox: id, origin: o, used: time.Now(), taken: make(chan struct{})}
}

// useOne lets a machine that has waited for long do what a hand-off and a first call
// do, so that its pages stay where they are however long it waits: a host takes
// away first what nobody has touched. Meanwhile the machine is not in the pool. It
// says whether there was one; while there are creates there is none.
func (p *pool) useOne() bool {
	k, m := p.takeIdle()
	if m == nil {
		return false
	}
	if err := p.use(m); err != nil {
		p.w.log.Warn("a warm machine cannot be kept warm", "instance", m.inst.ID, "err", err)
		p.discard(k, m, "it could not be kept warm")
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(k, newWarm(m.inst, m.sandbox, m.origin))
	return true
}

// takeIdle takes the machine out of the pool that has waited longest, if that is
// long enough.
func (p *pool) takeIdle() (*poolKind, *warm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.creates > 0 {
		return nil, nil
	}
	var kind *poolKind
	var idle *warm
	for _, k := range p.kinds {
		for _, m := range k.ready {
			if time.Since(m.used) >= p.keepWarm && (idle == nil || m.used.Before(idle.used)) {
				kind, idle = k, m
			}
		}
	}
	if idle != nil {
		p.removeLocked(kind, idle)
	}
	return kind, idle
}

func (p *pool) use(m *warm) error {
	ctx, cancel := context.WithTimeout(p.w.life, keepWarmTimeout)
	defer cancel()
	ctx, end := withCause(ctx, m.inst.machine)
	defer end(nil)
	if err := m.inst.machine.Resume(ctx); err != nil {
		return err
	}
	if err := p.w.rehearse(ctx, m.inst, IdentityOf(m.sandbox, nil)); err != nil {
		return err
	}
	return m.inst.machine.Pause(ctx)
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// run fills the pool until the worker closes.
func (p *pool) run() {
	tick := time.NewTicker(min(poolCheck, p.keepWarm))
	defer tick.Stop()
	pause := warmRetry
	var retry <-chan time.Time // set after a failure: nothing is made before it
	for {
		p.giveBack()
		if k := p.lacking(); k != nil && retry == nil && p.awaitQuiet(k) {
			err := p.refill(k)
			if err == nil {
				pause = warmRetry
				continue
			}
			if p.w.life.Err() != nil {
				return
			}
			p.w.log.Warn("cannot warm up a machine for the pool", "template", k.Template, "again_in", pause, "err", err)
			retry, pause = time.After(pause), min(2*pause, warmRetryMax)
		}
		if p.useOne() {
			continue
		}
		select {
		case <-p.wake:
		case <-retry:
			retry = nil
		case <-tick.C:
			p.sweep()
		case <-p.w.life.Done():
			return
		}
	}
}

// lacking returns the kind that lacks most of its machines, if there is memory for one more.
func (p *pool) lacking() *poolKind {
	free, err := p.w.cfg.FreeMemoryMB()
	if err != nil {
		p.w.log.Warn("the pool does not know how much memory is free", "err", err)
		return nil
	}
	if free < keepFreeMB+warmCostMB {
		return nil
	}
	if room, err := p.room(); err != nil || room <= 0 {
		return nil // giveBack tells of an error
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var most *poolKind
	for _, k := range p.kinds {
		lacks := k.stats.Size - len(k.ready)
		if lacks > 0 && (most == nil || lacks > most.stats.Size-len(most.ready)) {
			most = k
		}
	}
	return most
}

// awaitQuiet gives way to creates, for a while. It is false when the worker closes.
func (p *pool) awaitQuiet(k *poolKind) bool {
	p.mu.Lock()
	idle, most := time.Duration(0), quietFor
	if 2*len(k.ready) >= k.stats.Size {
		idle, most = quietFor, quietWait
	}
	p.mu.Unlock()
	limit := time.NewTimer(most)
	defer limit.Stop()
	for {
		p.mu.Lock()
		quiet, busy, rest := p.quiet, p.creates > 0, idle-time.Since(p.last)
		p.mu.Unlock()
		var rested <-chan time.Time
		switch {
		case busy:
		case rest <= 0:
			return p.w.life.Err() == nil
		default:
			quiet, rested = nil, time.After(rest)
		}
		select {
		case <-quiet:
		case <-rested:
		case <-limit.C:
			return p.w.life.Err() == nil
		case <-p.w.life.Done():
			return false
		}
	}
}

// refill makes one machine for the pool.
func (p *pool) refill(k *poolKind) error {
	begin := time.Now()
	p.mu.Lock()
	k.stats.Warming++
	p.mu.Unlock()
	m, err := p.w.warm(k.PoolKind)
	p.mu.Lock()
	defer p.mu.Unlock()
	k.stats.Warming--
	if err != nil {
		return err
	}
	observe(&k.stats.Refill, time.Since(begin))
	p.addLocked(k, m)
	return nil
}

func (p *pool) addLocked(k *poolKind, m *warm) {
	k.ready = append(k.ready, m)
	// One that dies while it waits is replaced at once.
	p.w.tasks.Go(func() { p.watch(k, m) })
}

func observe(t *sandbox.Timing, took time.Duration) {
	ms := float64(took) / float64(time.Millisecond)
	t.Count++
	t.TotalMS += ms
	t.LastMS = ms
}

// watch replaces a machine that dies while it waits.
func (p *pool) watch(k *poolKind, m *warm) {
	select {
	case <-m.inst.machine.Done():
	case <-m.taken:
		return
	case <-p.w.life.Done():
		return
	}
	p.mu.Lock()
	mine := p.removeLocked(k, m)
	p.mu.Unlock()
	if mine {
		p.discard(k, m, exitReason(m.inst))
		p.more()
	}
}

// sweep throws away what is dead or stale, and gives machines back when the host's
// memory is short.
func (p *pool) sweep() {
	for _, k := range p.kinds {
		t, err := p.w.cfg.Templates(k.Template)
		var now origin // of no machine, when there is no template
		if err == nil {
			now, err = p.w.originOf(t, k.Shape)
		}
		if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			p.w.log.Warn("the pool cannot look at its template", "template", k.Template, "err", err)
			continue
		}
		p.throwOut(k, func(m *warm) string { return m.unfit(now) })
	}
	free, err := p.w.cfg.FreeMemoryMB()
	if err != nil || free >= keepFreeMB {
		return
	}
	p.shrink((keepFreeMB-free)/warmCostMB+1, "the host's memory is short")
}

// room returns how many more machines fit into what is not promised to sandboxes.
// Below 0, that many have to go.
func (p *pool) room() (machines int, err error) {
	if p.w.cfg.UnpromisedMB == nil {
		return 1, nil
	}
	mb, err := p.w.cfg.UnpromisedMB()
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	held := 0
	for _, k := range p.kinds {
		held += len(k.ready) + k.stats.Warming
	}
	return max(0, mb)/warmCostMB - held, nil
}

// giveBack ends machines that stand in memory which is promised to sandboxes by now. A
// machine that was being made when it was promised goes as soon as it is there.
func (p *pool) giveBack() {
	room, err := p.room()
	if err != nil {
		p.w.log.Warn("the pool does not know how much memory is promised", "err", err)
		return
	}
	p.shrink(-room, "its memory is promised to sandboxes")
}

// shrink throws n machines away, of the kinds that have most.
func (p *pool) shrink(n int, why string) {
	for ; n > 0; n-- {
		var most *poolKind
		var m *warm
		p.mu.Lock()
		for _, k := range p.kinds {
			if len(k.ready) > 0 && (most == nil || len(k.ready) > len(most.ready)) {
				most = k
			}
		}
		if most != nil {
			m = most.ready[0]
			p.removeLocked(most, m)
		}
		p.mu.Unlock()
		if m == nil {
			return
		}
		p.discard(most, m, why)
	}
}

// throwOut discards the machines of a kind for which why gives a reason.
func (p *pool) throwOut(k *poolKind, why func(*warm) string) {
	reasons := make(map[*warm]string)
	p.mu.Lock()
	ready := append([]*warm(nil), k.ready...)
	p.mu.Unlock()
	for _, m := range ready {
		if r := why(m); r != "" {
			reasons[m] = r
		}
	}
	for m, r := range reasons {
		p.mu.Lock()
		mine := p.removeLocked(k, m)
		p.mu.Unlock()
		if mine {
			p.discard(k, m, r)
		}
	}
}

// warm makes a machine that has done everything but get an owner.
func (w *Worker) warm(k PoolKind) (_ *warm, err error) {
	t, err := w.cfg.Templates(k.Template)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(w.life, w.cfg.BootTimeout+2*w.cfg.ColdTimeout)
	defer cancel()
	id := sandbox.NewID()
	identity := IdentityOf(id, nil)
	i, err := w.restoreGolden(ctx, Request{
		Instance: sandbox.NewInstanceID(), Template: k.Template, Shape: k.Shape, Identity: identity,
	}, t, true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer cancel()
			err = errors.Join(err, i.free(ctx))
		}
	}()
	o, err := w.originOf(t, k.Shape)
	if err != nil {
		return nil, err
	}
	if err := w.rehearse(ctx, i, identity); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	if err := i.machine.Pause(ctx); err != nil {
		return nil, err
	}
	return newWarm(i, id, o), nil
}

// rehearse does what a hand-off and a first call do, so that the guest's part of
// it is translated and in memory.
func (w *Worker) rehearse(ctx context.Context, i *Instance, identity Identity) error {
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	if err := warmUp(ctx, i, nil); err != nil {
		return err
	}
	return w.refresh(ctx, client, i.Template, identity, refreshOptions{unused: true})
}

package worker

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"ramet.dev/ramet/internal/sandbox"
)

// handOffTimeout bounds the hand-off of one machine. One that takes longer is
// thrown away, and the next one is tried.
const handOffTimeout = 5 * time.Second

// Claim takes a machine of the request's template and shape from the pool, and
// gives it the policy and the environment of the request. It keeps the identity that
// it was warmed up with, that of the sandbox of the returned id. The instance
// is nil when the pool has none.
func (w *Worker) Claim(ctx context.Context, req Request) (*Instance, sandbox.ID, error) {
	k := w.pool.kind(req.Template, req.Shape)
	if k == nil {
		return nil, "", nil
	}
	ctx, end, err := w.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer end()
	defer w.pool.foreground()()
	t, err := w.cfg.Templates(req.Template)
	if err != nil {
		return nil, "", err
	}
	i, id := w.fromPool(ctx, k, req, t, false)
	if i != nil {
		w.enter(i)
	}
	return i, id, nil
}

// fromPool starts a machine for req from the pool. It returns nil when the
// pool has none, whatever the reason. A renamed machine gets the request's
// identity, any other one keeps its own and gets the request's environment.
func (w *Worker) fromPool(ctx context.Context, k *poolKind, req Request, t Template, rename bool) (*Instance, sandbox.ID) {
	asked := time.Now()
	now, err := w.originOf(t, req.Shape)
	if err != nil {
		w.log.Warn("the pool is passed by", "err", err)
		return nil, ""
	}
	looked := time.Since(asked)
	for ctx.Err() == nil {
		begin := time.Now()
		m := w.pool.take(k, now)
		if m == nil {
			return nil, ""
		}
		if !rename {
			req.Identity = IdentityOf(m.sandbox, req.Identity.Env)
		}
		claimed := time.Now()
		if err := w.handOff(ctx, m.inst, req); err != nil {
			if ctx.Err() == nil {
				w.log.Warn("a warm machine could not be handed off", "instance", m.inst.ID, "err", err)
			}
			w.pool.discard(k, m, "its hand-off failed")
			continue
		}
		m.inst.Steps = append([]sandbox.StepTime{{Name: "claim", Took: looked + claimed.Sub(begin)}}, m.inst.Steps...)
		w.pool.hit(k, time.Since(begin))
		return m.inst, m.sandbox
	}
	return nil, ""
}

// handOff gives a paused machine of the pool to its owner. The request for its
// identity waits in the agent's port until the machine runs; no code of a user
// is there before it has been served.
func (w *Worker) handOff(ctx context.Context, i *Instance, req Request) error {
	ctx, cancel := context.WithTimeout(ctx, handOffTimeout)
	defer cancel()
	ctx, end := withCause(ctx, i.machine)
	defer end(nil)
	client, err := i.Guest(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := i.machine.SetBackground(false); err != nil {
		return fmt.Errorf("bring it to the foreground: %w", err)
	}
	i.forgetDenials()
	i.SetPolicy(req.Policy)
	foreground := time.Since(begin)
	var resumed, known time.Duration
	begin = time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := i.machine.Resume(ctx)
		resumed = time.Since(begin)
		return err
	})
	g.Go(func() error {
		// The certificates are in already.
		err := w.refresh(ctx, client, i.Template, req.Identity, refreshOptions{unused: true})
		known = time.Since(begin)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	i.Steps = []sandbox.StepTime{{Name: "foreground", Took: foreground}, {Name: "resume", Took: resumed}, {Name: "identity", Took: known}}
	return nil
}

func (p *pool) hit(k *poolKind, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.stats.Hits++
	observe(&k.stats.HandOff, took)
}

// missed counts a create that had to boot a machine. k is nil when no pool is
// kept for it; took is 0 when it failed.
func (p *pool) missed(k *poolKind, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k == nil {
		p.unpooled++
		return
	}
	k.stats.Misses++
	if took > 0 {
		observe(&k.stats.OnDemand, took)
	}
}

package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Claimer is a Machines that keeps machines ready. Such a machine has its id and
// its identity before anybody asks for it, so that a sandbox made of it is one
// transaction: there is no record before the machine takes calls, and a machine
// without a record is nobody's, and removed when the server starts.
type Claimer interface {
	// Claim gives a machine that was kept ready to a sandbox, whose record has no
	// id yet, and returns when its agent takes calls. Started says which id the
	// machine was made for. It is false when there is none.
	Claim(ctx context.Context, r StartRequest) (Started, bool, error)
}

// createReady makes a sandbox of a machine that is kept ready. It is false when
// there was none. When ctx ends before, nothing is left.
func (c *Control) createReady(ctx context.Context, project string, r CreateRequest) (sb sandbox.Sandbox, steps []sandbox.StepTime, found bool, err error) {
	claimer, ok := c.machines.(Claimer)
	if !ok {
		return sandbox.Sandbox{}, nil, false, nil
	}
	begin, done := time.Now(), make(chan struct{})
	c.mu.Lock()
	serr := c.spawnLocked(func() {
		defer func() {
			c.mu.Lock()
			delete(c.claims, done)
			c.mu.Unlock()
			close(done)
		}()
		opCtx, stop := context.WithTimeoutCause(c.life, c.cfg.CreateTimeout, errCreateTimeout(c.cfg.CreateTimeout))
		defer stop()
		opCtx, cancel := context.WithCancelCause(opCtx)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() { cancel(errAbandoned) })()
		sb, steps, found, err = c.claim(opCtx, claimer, project, r)
	})
	if serr == nil {
		c.claims[done] = true
	}
	c.mu.Unlock()
	if serr != nil {
		return sandbox.Sandbox{}, nil, false, serr
	}
	<-done // it ends with ctx, but for what it then has to free
	if errors.Is(err, errAbandoned) {
		err = fmt.Errorf("create sandbox: %w", context.Cause(ctx))
	}
	if err == nil && found {
		c.log.Info("sandbox created", "sandbox", sb.ID, "project", project, "template", sb.Template, "took", time.Since(begin))
	}
	return sb, steps, found, err
}

// claim takes a machine and enters its record. What it refuses, it refuses before
// it takes one if it can: each that is thrown away costs the host a new one.
func (c *Control) claim(ctx context.Context, claimer Claimer, project string, r CreateRequest) (sandbox.Sandbox, []sandbox.StepTime, bool, error) {
	begin := time.Now()
	sb := c.newRecord(project, r)
	limits, err := c.limits()
	if err == nil {
		err = c.store.Admit(ctx, sb, limits)
	}
	if err != nil {
		return sb, nil, false, err
	}
	admitted := sandbox.StepTime{Name: "admit", Took: time.Since(begin)}
	started, found, err := claimer.Claim(ctx, StartRequest{Sandbox: sb})
	if err != nil || !found {
		return sb, nil, false, err
	}
	sb.ID, sb.Instance, sb.Isolation, sb.TemplateHash = started.ID, started.Instance, started.Isolation, started.TemplateHash
	begin = time.Now()
	sb.Begin(begin)
	var running sandbox.Sandbox
	if err = r.checkIsolation(started.Isolation); err == nil {
		running, err = c.enterReady(ctx, sb, limits)
	}
	if err != nil {
		if cerr := context.Cause(ctx); cerr != nil {
			err = cerr
		}
		return sb, nil, true, errors.Join(fmt.Errorf("create sandbox %s: %w", sb.ID, err), c.dropReady(sb, err))
	}
	c.lives.watch(running)
	c.noticeEnd(running)
	return running, append(append([]sandbox.StepTime{admitted}, started.Steps...), sandbox.StepTime{Name: "commit", Took: time.Since(begin)}), true, nil
}

// enterReady enters the record of a sandbox whose machine takes calls, on a
// template that is still there.
func (c *Control) enterReady(ctx context.Context, sb sandbox.Sandbox, limits store.Limits) (sandbox.Sandbox, error) {
	c.standing.RLock()
	defer c.standing.RUnlock()
	if _, err := c.templates.Get(ctx, sb.Template); err != nil {
		return sb, err
	}
	if cause := context.Cause(ctx); cause != nil {
		return sb, cause // nobody waits for it any more
	}
	return c.store.CreateRunning(ctx, sb,
		store.Event{Cause: causeCreate, Reason: "it was asked for"},
		store.Event{Cause: causeCreate, Reason: "its machine takes calls"}, limits)
}

// dropReady ends a machine that was claimed for nothing.
func (c *Control) dropReady(sb sandbox.Sandbox, cause error) error {
	ctx, cancel := c.cleanup()
	defer cancel()
	c.log.Info("a machine that was kept ready is thrown away", "sandbox", sb.ID, "instance", sb.Instance, "cause", cause)
	if err := c.machines.Stop(ctx, sb.Instance); err != nil {
		return fmt.Errorf("free instance %s: %w", sb.Instance, err)
	}
	return nil
}

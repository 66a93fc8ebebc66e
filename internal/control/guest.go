package control

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/sandbox"
)

// reach returns a running sandbox and a connection to its guest. Until done is
// called the sandbox is in use, and not idle.
func (c *Control) reach(ctx context.Context, project string, id sandbox.ID) (sb sandbox.Sandbox, g Guest, done func(), err error) {
	if sb, err = c.store.Get(ctx, project, id); err != nil {
		return sb, nil, nil, err
	}
	if err := usable(sb); err != nil {
		return sb, nil, nil, err
	}
	if done, err = c.lives.use(sb); err != nil {
		return sb, nil, nil, err
	}
	g, err = c.machines.Guest(ctx, sb.Instance)
	if err != nil {
		done()
		return sb, nil, nil, c.explain(ctx, sb, err)
	}
	return sb, g, done, nil
}

// usable says why a sandbox cannot take calls.
func usable(sb sandbox.Sandbox) error {
	switch sb.State {
	case sandbox.Running:
		return nil
	case sandbox.Stopped, sandbox.Stopping:
		return sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "sandbox not found")
	case sandbox.Failed:
		return sandbox.Errorf(sandbox.Conflict, "sandbox_failed", "the sandbox has failed (%s); delete it and create another", sb.FailReason)
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox_not_running", "the sandbox is %s; try again when it is running", sb.State)
}

// short makes one call to a guest that should be answered at once.
func short[T any](ctx context.Context, c *Control, project string, id sandbox.ID, f func(context.Context, Guest) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.GuestTimeout, errNoAnswer)
	defer cancel()
	return call(ctx, c, project, id, f)
}

// call makes one call to a guest that may take as long as it takes. A guest
// that has died is found out by the connection, which is watched.
func call[T any](ctx context.Context, c *Control, project string, id sandbox.ID, f func(context.Context, Guest) (T, error)) (T, error) {
	var zero T
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return zero, err
	}
	defer done()
	v, err := f(ctx, g)
	if err != nil {
		return zero, c.explain(ctx, sb, err)
	}
	c.answered(ctx, sb)
	return v, nil
}

var errNoAnswer = sandbox.Errorf(sandbox.Unavailable, "guest_unreachable", "the sandbox does not answer")

// explain turns the error of a call to a guest into what its caller may read,
// and notes what it says about the sandbox.
func (c *Control) explain(ctx context.Context, sb sandbox.Sandbox, err error) error {
	if ctx.Err() != nil {
		// The cause is the caller's own leaving, or our deadline.
		if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
			err = cause
		} else {
			return fmt.Errorf("call to sandbox %s: %w", sb.ID, cause)
		}
	}
	err = guest.Error(err)
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Unavailable {
		c.answered(ctx, sb)
		return err
	}
	// The call may have outlived its sandbox: the record knows better than the connection.
	ctx = context.WithoutCancel(ctx)
	now, gerr := c.store.Get(ctx, sb.Project, sb.ID)
	switch {
	case gerr != nil:
		return errors.Join(err, gerr)
	case now.State == sandbox.Stopping || now.State == sandbox.Stopped:
		return &sandbox.Error{Kind: sandbox.NotFound, Code: "sandbox_deleted", Message: "the sandbox was deleted during the call", Err: err}
	case now.State == sandbox.Failed || !c.machines.Alive(sb.Instance):
		return &sandbox.Error{Kind: sandbox.Conflict, Code: "sandbox_failed", Message: "the sandbox's machine ended during the call", Err: err}
	}
	if merr := c.store.MarkUnresponsive(ctx, now, e.Message); merr != nil {
		return errors.Join(err, merr)
	}
	c.log.Warn("guest does not answer", "sandbox", sb.ID, "instance", sb.Instance, "err", err)
	return err
}

// answered clears the mark of a guest that had stopped answering.
func (c *Control) answered(ctx context.Context, sb sandbox.Sandbox) {
	if sb.UnresponsiveSince.IsZero() {
		return
	}
	if err := c.store.ClearUnresponsive(context.WithoutCancel(ctx), sb); err != nil {
		c.log.Error("mark sandbox responsive", "sandbox", sb.ID, "err", err)
	}
}

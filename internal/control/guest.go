package control

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/sandbox"
)

// reach returns a running sandbox and a connection to its guest, and wakes the sandbox
// for it where that is allowed. Until done is called the sandbox is in use, and not idle.
func (c *Control) reach(ctx context.Context, project string, id sandbox.ID) (sb sandbox.Sandbox, g Guest, done func(), err error) {
	for {
		if sb, err = c.store.Get(ctx, project, id); err != nil {
			return sb, nil, nil, err
		}
		if sleeps(sb.State) {
			if !mayWake(ctx) {
				return sb, nil, nil, errHibernated
			}
			if _, _, err = c.joinWake(ctx, sb, WakeRequest{}); err != nil {
				return sb, nil, nil, err
			}
			continue
		}
		if err := usable(sb); err != nil {
			return sb, nil, nil, err
		}
		done, err = c.lives.use(ctx, sb)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return sb, nil, nil, err
		}
		if g, err = c.machines.Guest(ctx, sb.Instance); err == nil {
			return sb, g, done, nil
		}
		now, gerr := c.store.Get(ctx, project, id)
		if gerr == nil && (sleeps(now.State) || now.State == sandbox.Running && now.Instance != sb.Instance) {
			done()
			continue // its machine was taken away since we looked
		}
		err = c.explain(ctx, sb, err)
		done()
		return sb, nil, nil, err
	}
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
	case sandbox.Hibernating, sandbox.Hibernated, sandbox.Waking:
		return errHibernated
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox_not_running", "the sandbox is %s; try again when it is running", sb.State)
}

// short makes one call to a guest that should be answered at once.
func short[T any](ctx context.Context, c *Control, project string, id sandbox.ID, f func(context.Context, Guest) (T, error)) (T, error) {
	return call(ctx, c, project, id, func(ctx context.Context, g Guest) (T, error) {
		// A wake before it is not the guest's time.
		ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.GuestTimeout, errNoAnswer)
		defer cancel()
		v, err := f(ctx, g)
		if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
			err = errNoAnswer
		}
		return v, err
	})
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
	if why := c.lives.why(sb.Instance); errors.As(why, &e) {
		return &sandbox.Error{Kind: e.Kind, Code: e.Code, Message: e.Message, Err: err}
	}
	// The call may have outlived its sandbox, and its machine may be another's by now: the
	// record knows better than the connection.
	ctx = context.WithoutCancel(ctx)
	now, gerr := c.store.OfInstance(ctx, sb.Instance)
	switch {
	case sandbox.KindOf(gerr) == sandbox.NotFound:
		return &sandbox.Error{Kind: sandbox.Unavailable, Code: "machine_gone", Message: "the sandbox got another machine during the call; try again", Err: err}
	case gerr != nil:
		return errors.Join(err, gerr)
	case now.State == sandbox.Hibernating || now.State == sandbox.Hibernated:
		return &sandbox.Error{Kind: errSleptAway.Kind, Code: errSleptAway.Code, Message: errSleptAway.Message, Err: err}
	case now.State == sandbox.Stopping || now.State == sandbox.Stopped:
		return &sandbox.Error{Kind: sandbox.NotFound, Code: "sandbox_deleted", Message: "the sandbox was deleted during the call", Err: err}
	case now.State == sandbox.Failed || !c.machines.Alive(sb.Instance):
		return &sandbox.Error{Kind: sandbox.Conflict, Code: "sandbox_failed", Message: "the sandbox's machine ended during the call", Err: err}
	}
	errors.As(err, &e)
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

package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// Operations that change what a sandbox's machine is (fork, merge, hibernate, wake,
// checkpoint, restore) exclude each other per sandbox; calls to the guest go on beside
// them. An operation runs as a task of its own: its caller only waits for it. A delete
// excludes them too, but does not wait in line: it cuts the one that is under way short.

var errBusy = &sandbox.Error{
	Kind: sandbox.Conflict, Code: "sandbox_busy", RetryAfter: time.Second,
	Message: "another operation on the sandbox takes very long; try again when it has ended",
}

// begin makes an operation the one of the sandboxes. It waits for those under way
// until ctx ends or the configured time is over.
func (c *Control) begin(ctx context.Context, ids ...sandbox.ID) (*operation, context.Context, error) {
	wait := time.NewTimer(c.cfg.BusyTimeout)
	defer wait.Stop()
	for {
		op, opCtx, other, err := c.tryBegin(ids...)
		if err != nil || op != nil {
			return op, opCtx, err
		}
		select {
		case <-other:
		case <-wait.C:
			return nil, nil, errBusy
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("wait for another operation on the sandbox: %w", context.Cause(ctx))
		case <-c.life.Done():
			return nil, nil, errClosing
		}
	}
}

// tryBegin is begin that does not wait: other is closed when it is worth another try.
func (c *Control) tryBegin(ids ...sandbox.ID) (op *operation, opCtx context.Context, other <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, nil, nil, errClosing
	}
	for _, id := range ids {
		if c.deletes[id] != nil {
			return nil, nil, nil, sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "sandbox not found")
		}
		if o := c.ops[id]; o != nil {
			return nil, nil, o.done, nil
		}
	}
	opCtx, stop := context.WithTimeoutCause(c.life, c.cfg.OperationTimeout,
		sandbox.Errorf(sandbox.Unavailable, "operation_timeout", "the operation did not end within %s", c.cfg.OperationTimeout))
	opCtx, cancel := context.WithCancelCause(opCtx)
	op = &operation{done: make(chan struct{}), cancel: func(err error) { cancel(err); stop() }, on: slices.Clone(ids)}
	for _, id := range ids {
		c.ops[id] = op
	}
	return op, opCtx, nil, nil
}

// endOp lets the next operation of the sandboxes begin.
func (c *Control) endOp(op *operation) {
	c.mu.Lock()
	for _, id := range op.on {
		delete(c.ops, id)
	}
	c.mu.Unlock()
	op.cancel(nil)
	close(op.done)
}

// run runs f as the operation of the sandboxes and waits for it, at most until ctx ends;
// f goes on then. When f has succeeded and nobody waits any more, orphaned is called
// with what it made, unless it is nil; then also f's context ends with the caller's.
func run[T any](ctx context.Context, c *Control, ids []sandbox.ID, f func(context.Context) (T, error), orphaned func(T)) (T, error) {
	var v, zero T
	op, opCtx, err := c.begin(ctx, ids...)
	if err != nil {
		return zero, err
	}
	var fail error
	left := make(chan struct{}) // closed when the caller has left
	handed := make(chan struct{})
	err = c.spawn(func() {
		v, fail = f(opCtx)
		c.endOp(op)
		if orphaned == nil {
			return
		}
		select { // one of them is closed soon: the operation is done
		case <-handed:
		case <-left:
			if fail == nil {
				orphaned(v)
			}
		}
	})
	if err != nil {
		c.endOp(op)
		return zero, err
	}
	select {
	case <-op.done:
		close(handed)
		return v, fail
	case <-ctx.Done():
		if orphaned != nil {
			op.cancel(errAbandoned)
		}
		close(left)
		return zero, fmt.Errorf("wait for the operation: %w", context.Cause(ctx))
	}
}

// endOperation cuts the operation of a sandbox short, if there is one, and waits for its end.
func (c *Control) endOperation(ctx context.Context, id sandbox.ID) error {
	c.mu.Lock()
	op := c.ops[id]
	c.mu.Unlock()
	if op == nil {
		return nil
	}
	op.cancel(errDeletedMeanwhile)
	select {
	case <-op.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for an operation on sandbox %s to end: %w", id, context.Cause(ctx))
	}
}

// awaitOperation waits for the operation of a sandbox and says whether there was one.
func (c *Control) awaitOperation(ctx context.Context, id sandbox.ID) (waited bool, err error) {
	c.mu.Lock()
	op := c.ops[id]
	c.mu.Unlock()
	if op == nil {
		return false, nil
	}
	select {
	case <-op.done:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// errDeletedMeanwhile cancels an operation whose sandbox is deleted.
var errDeletedMeanwhile = sandbox.Errorf(sandbox.Conflict, "sandbox_deleted", "the sandbox was deleted meanwhile")

// commit returns a context for recording what has happened: what is done is recorded
// also when the operation has been cut short.
func (c *Control) commit() (context.Context, context.CancelFunc) { return c.cleanup() }

// undone makes the error of an operation that was undone fit for its caller: why it was cut short,
// or a full disk, is more than what the step says that failed by it.
func (c *Control) undone(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return c.diskFull(err)
}

// want returns a sandbox that runs, and wakes it when it is hibernated and that is allowed.
// The caller has the operation of the sandbox.
func (c *Control) want(ctx context.Context, project string, id sandbox.ID, wake bool) (sandbox.Sandbox, error) {
	sb, err := c.store.Get(ctx, project, id)
	if err != nil {
		return sb, err
	}
	if sb.State == sandbox.Hibernated && wake {
		sb, _, err = c.runWake(ctx, sb, WakeRequest{})
		return sb, err
	}
	if err := usable(sb); err != nil {
		return sb, err
	}
	// An operation has an intent of its own, which must not take the place of this one.
	left, err := c.store.IntentOf(ctx, id)
	if err == nil && left == opMerge {
		err = c.rename(ctx, sb)
	}
	return sb, err
}

// occupy makes an operation count as use of the sandbox. The caller has the operation, so that only
// the end of the machine can come between.
func (c *Control) occupy(ctx context.Context, sb sandbox.Sandbox) (done func(), err error) {
	for {
		done, err = c.lives.use(ctx, sb)
		if !errors.Is(err, errMoved) {
			return done, err
		}
		now, err := c.store.Get(ctx, sb.Project, sb.ID)
		if err != nil {
			return nil, err
		}
		if err := usable(now); err != nil {
			return nil, err
		}
		sb = now
	}
}

// exists says early that a sandbox is not the project's, before anything waits for it.
func (c *Control) exists(ctx context.Context, project string, ids ...sandbox.ID) error {
	for _, id := range ids {
		sb, err := c.store.Get(ctx, project, id)
		if err != nil {
			return err
		}
		if sb.State == sandbox.Stopping || sb.State == sandbox.Stopped {
			return usable(sb)
		}
	}
	return nil
}

// observe counts an operation.
func (c *Control) observe(name string, begin time.Time, err *error) {
	if o, ok := c.cfg.Observer.(OperationObserver); ok {
		o.Operated(name, time.Since(begin), errorCode(*err))
	}
}

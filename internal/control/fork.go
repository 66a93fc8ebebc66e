package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// MaxForks is the most children of one fork.
const MaxForks = 32

// ForkRequest says how to fork.
type ForkRequest struct {
	N int // children
	// KeepSeed leaves the random number generators of the REPL as the parent has them.
	KeepSeed bool
	// EndAfter, when set, is how long the children run until their deadline. 0 is the parent's.
	EndAfter time.Duration
	// Idempotency is the tag of an idempotent call, see Once.
	Idempotency string
}

// ForkResult is what came of a fork.
type ForkResult struct {
	Children []sandbox.Sandbox
	Info     sandbox.SaveInfo // Paused is how long the parent stood still
	Steps    []sandbox.StepTime
}

// Fork makes children of a sandbox, with its memory, processes, files and settings at one
// instant and ids of their own, and returns when all take calls. All are made or none. The
// parent goes on; a hibernated one is woken first. When ctx ends before, the fork is undone.
func (c *Control) Fork(ctx context.Context, project string, id sandbox.ID, r ForkRequest) (ForkResult, error) {
	if r.N < 1 || r.N > MaxForks {
		return ForkResult{}, sandbox.Errorf(sandbox.Invalid, "invalid_n", "n is %d; it can be 1 to %d", r.N, MaxForks)
	}
	if err := firstOf(checkTimer("ends_in_s", r.EndAfter), c.exists(ctx, project, id)); err != nil {
		return ForkResult{}, err
	}
	if r.Idempotency != "" {
		made, err := c.store.AllOfIdempotency(ctx, project, r.Idempotency, time.Now().Add(-keepAnswers))
		if err != nil || len(made) > 0 {
			return ForkResult{Children: made}, err // made, but the server ended before its answer was kept
		}
	}
	wake := mayWake(ctx)
	return run(ctx, c, []sandbox.ID{id}, func(ctx context.Context) (f ForkResult, err error) {
		defer c.observe("fork", time.Now(), &err)
		sb, err := c.want(ctx, project, id, wake)
		if err != nil {
			return f, err
		}
		done, err := c.occupy(ctx, sb)
		if err != nil {
			return f, err
		}
		defer done()
		return c.runFork(ctx, sb, r)
	}, c.dropForks)
}

// dropForks deletes children that nobody knows of: their caller has left.
func (c *Control) dropForks(f ForkResult) {
	ctx, cancel := c.cleanup()
	defer cancel()
	for _, sb := range f.Children {
		if err := c.Delete(ctx, sb.Project, sb.ID); err != nil {
			c.log.Error("delete a child that nobody waited for", "sandbox", sb.ID, "err", err)
		}
	}
}

func (c *Control) runFork(ctx context.Context, parent sandbox.Sandbox, r ForkRequest) (ForkResult, error) {
	begin := time.Now()
	children := make([]sandbox.Sandbox, r.N)
	for i := range children {
		children[i] = childOf(parent, r.Idempotency)
		if r.EndAfter > 0 {
			children[i].Deadline.After = r.EndAfter
		}
	}
	forget := c.expect(children)
	defer forget()
	limits, err := c.limits()
	if err != nil {
		return ForkResult{}, err
	}
	children, err = c.store.CreateMany(ctx, children, opFork, limits, store.Step{
		ID: parent.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
			Instance: parent.Instance, Begin: opFork,
			Event: store.Event{Type: "forking", Cause: causeFork, Reason: fmt.Sprintf("a fork of %d was asked for", r.N)},
		},
	})
	if err != nil {
		return ForkResult{}, err
	}
	steps := []sandbox.StepTime{{Name: "record", Took: time.Since(begin)}}
	requests := make([]StartRequest, len(children))
	for i, sb := range children {
		requests[i] = StartRequest{Sandbox: sb, KeepSeed: r.KeepSeed}
	}
	started, info, err := c.machines.Fork(ctx, parent.Instance, requests)
	if err == nil && len(started) != len(children) {
		err = fmt.Errorf("%d machines were started for %d children", len(started), len(children))
	}
	for i := range min(len(started), len(children)) {
		if started[i].Instance != "" {
			children[i].Instance = started[i].Instance
		}
	}
	if err != nil || ctx.Err() != nil {
		err = fmt.Errorf("fork sandbox %s: %w", parent.ID, c.undone(ctx, err))
		c.undoFork(parent, children, err)
		return ForkResult{}, err
	}
	committing := time.Now()
	running, err := c.commitFork(parent, children, started)
	if err != nil {
		c.undoFork(parent, children, err)
		return ForkResult{}, err
	}
	steps = append(append(steps, info.Steps...), sandbox.StepTime{Name: "commit", Took: time.Since(committing)})
	c.log.Info("sandbox forked", "sandbox", parent.ID, "children", len(running), "paused", info.Paused, "took", time.Since(begin))
	return ForkResult{Children: running, Info: info, Steps: steps}, nil
}

// childOf makes the record of a fork: the parent's settings and machine, an id of its own.
func childOf(parent sandbox.Sandbox, tag string) sandbox.Sandbox {
	child := sandbox.Sandbox{
		ID: sandbox.NewID(), Project: parent.Project, Region: parent.Region, Node: parent.Node,
		Template: parent.Template, TemplateHash: parent.TemplateHash, Instance: sandbox.NewInstanceID(),
		Shape: parent.Shape, Isolation: parent.Isolation, Origin: sandbox.OriginFork, Parent: parent.ID, Idempotency: tag,
	}
	inherit(&child, settingsOf(parent))
	return child
}

// expect enters sandboxes that are being made by an operation, so that neither a delete of
// one nor the sweep comes before its end.
func (c *Control) expect(list []sandbox.Sandbox) (forget func()) {
	op := &operation{done: make(chan struct{}), cancel: func(error) {}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sb := range list {
		c.creates[sb.ID] = op
	}
	return func() {
		c.mu.Lock()
		for _, sb := range list {
			delete(c.creates, sb.ID)
		}
		c.mu.Unlock()
		close(op.done)
	}
}

func (c *Control) commitFork(parent sandbox.Sandbox, children []sandbox.Sandbox, started []Started) ([]sandbox.Sandbox, error) {
	ctx, cancel := c.commit()
	defer cancel()
	steps := make([]store.Step, 0, len(children)+1)
	for i, sb := range children {
		s := started[i]
		steps = append(steps, store.Step{ID: sb.ID, From: sandbox.Creating, To: sandbox.Running, Change: store.Change{
			End: true,
			Apply: func(r *sandbox.Sandbox) {
				r.Instance, r.BootNote = sb.Instance, s.ColdBecause
				r.Begin(time.Now())
				if s.Isolation != "" {
					r.Isolation = s.Isolation
				}
			},
			Event: store.Event{Cause: causeFork, Reason: "its machine takes calls", Data: map[string]string{"parent": string(parent.ID)}},
		}})
	}
	steps = append(steps, store.Step{ID: parent.ID, From: sandbox.Running, To: sandbox.Running, Change: store.Change{
		Instance: parent.Instance, End: true,
		Event: store.Event{Type: "forked", Cause: causeFork, Reason: fmt.Sprintf("it has %d more children", len(children))},
	}})
	list, err := c.store.TransitionMany(ctx, steps...)
	if err != nil {
		return nil, err
	}
	list = list[:len(children)]
	for _, sb := range list {
		c.lives.watch(sb)
		c.noticeEnd(sb)
	}
	return list, nil
}

// undoFork frees what there may be of the children, and lets the parent go on. What cannot
// be freed or recorded now the sweep tries again.
func (c *Control) undoFork(parent sandbox.Sandbox, children []sandbox.Sandbox, cause error) {
	ctx, cancel := c.cleanup()
	defer cancel()
	log := c.log.With("sandbox", parent.ID)
	log.Error("fork failed", "err", cause)
	reason := reasonOf(cause, "the fork could not be made")
	errs := []error{c.goOn(ctx, parent)}
	steps := make([]store.Step, len(children))
	for i, sb := range children {
		steps[i] = store.Step{ID: sb.ID, From: sandbox.Creating, To: sandbox.Stopping, Change: store.Change{
			Begin: opDelete,
			Apply: func(r *sandbox.Sandbox) { r.Instance, r.FailReason = sb.Instance, reason },
			Event: store.Event{Type: "create_failed", Cause: causeFork, Reason: reason},
		}}
	}
	_, err := c.store.TransitionMany(ctx, steps...)
	if err == nil {
		for _, sb := range children {
			errs = append(errs, c.finishStop(ctx, sb, causeFork))
		}
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		log.Error("undo a fork", "err", err)
	}
}

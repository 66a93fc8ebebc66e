package control

import (
	"context"
	"errors"
	"math"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// Observer is told what is worth counting. It must not wait.
type Observer interface {
	// Created tells the end of a create; code is that of its error, or empty.
	Created(took time.Duration, code string)
	// Ended tells that a sandbox stopped or failed.
	Ended(state, cause string)
}

// OperationObserver is what an Observer may be besides: it is told of the other operations.
type OperationObserver interface {
	// Operated tells the end of a fork, merge, hibernate, wake, checkpoint, restore or
	// resume; code is that of its error, or empty.
	Operated(operation string, took time.Duration, code string)
}

// blind is the observer of a Control that has none.
type blind struct{}

func (blind) Created(time.Duration, string) {}
func (blind) Ended(string, string)          {}

// errorCode is the word for an error in a count: few, and none from outside.
func errorCode(err error) string {
	var e *sandbox.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled), errors.Is(err, errAbandoned):
		return "abandoned"
	}
	return sandbox.Internal.String()
}

// Room is what of the host is promised to sandboxes and may be; 0 is no limit.
type Room struct {
	MemoryMB, MemoryLimitMB int // a machine's own process included
	DiskMB, DiskLimitMB     int
	DiskFull                bool
}

// Room says what of the host is promised.
func (c *Control) Room(ctx context.Context) (Room, error) {
	l, err := c.limits()
	if err != nil {
		return Room{}, err
	}
	u, err := c.store.UsageOfNode(ctx, c.cfg.Node)
	if err != nil {
		return Room{}, err
	}
	return Room{
		MemoryMB: u.MemoryMB + u.Sandboxes*l.OverheadMB, MemoryLimitMB: l.Node.MemoryMB,
		DiskMB: u.DiskMB, DiskLimitMB: l.Node.DiskMB, DiskFull: c.store.Full(),
	}, nil
}

// UnpromisedMB returns how much of the host's memory is not promised to sandboxes but
// could be, in MiB; very much where nothing limits it.
func (c *Control) UnpromisedMB(ctx context.Context) (int, error) {
	limit, err := c.room.memoryMB()
	if err != nil || limit == 0 {
		return math.MaxInt, err
	}
	u, err := c.store.UsageOfNode(ctx, c.cfg.Node)
	if err != nil {
		return 0, err
	}
	return limit - u.MemoryMB - u.Sandboxes*c.cfg.Admission.OverheadMB, nil
}

// CountStates counts the sandboxes of this node by state, stopped ones left out.
func (c *Control) CountStates(ctx context.Context) (map[string]int, error) {
	return c.store.CountStates(ctx, c.cfg.Node)
}

// Use is what a sandbox costs the host now.
type Use struct {
	Sandbox sandbox.Sandbox
	Stats   sandbox.MachineStats // zero for one without a machine
}

// Usage says what each sandbox of a project costs the host. Those that have stopped
// or failed cost nothing and are left out.
func (c *Control) Usage(ctx context.Context, project string) ([]Use, error) {
	var list []Use
	o := ListOptions{Limit: 1000}
	for {
		page, more, err := c.store.List(ctx, project, o)
		if err != nil {
			return nil, err
		}
		for _, sb := range page {
			if sb.State == sandbox.Failed {
				continue
			}
			u := Use{Sandbox: sb}
			if stats, err := c.machines.Stats(sb.Instance); err == nil {
				u.Stats = stats
			} else if sandbox.KindOf(err) != sandbox.Unavailable { // it has no machine now
				return nil, err
			}
			list = append(list, u)
		}
		if !more || ctx.Err() != nil {
			return list, ctx.Err()
		}
		last := page[len(page)-1]
		o.After = &Position{CreatedAt: last.CreatedAt, ID: last.ID}
	}
}

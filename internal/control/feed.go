package control

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Event is something that happened to a sandbox.
type Event = store.Event

// FeedStart says where a feed begins: behind an event, or at a time. Zero is at
// the oldest event that is kept.
type FeedStart struct {
	After int64
	Time  time.Time
}

// feedBatch is how many events are read at once.
const feedBatch = 200

// Feed is the events of a project from a place on. It has one reader.
type Feed struct {
	// Gap says that events behind the place asked for are not kept any more.
	Gap bool

	c       *Control
	project string
	id      sandbox.ID
	after   int64
}

// Feed opens a feed of a project's events, or of those of one of its sandboxes when id
// is not empty.
func (c *Control) Feed(ctx context.Context, project string, id sandbox.ID, start FeedStart) (*Feed, error) {
	f := &Feed{c: c, project: project, id: id, after: start.After}
	if id != "" {
		if err := c.hasHistory(ctx, project, id); err != nil {
			return nil, err
		}
	}
	var err error
	if !start.Time.IsZero() {
		if f.after, err = c.store.EventBefore(ctx, start.Time); err != nil {
			return nil, err
		}
	}
	if start.After > 0 {
		oldest, err := c.store.OldestEvent(ctx)
		if err != nil {
			return nil, err
		}
		f.Gap = oldest > start.After+1
	}
	return f, nil
}

// hasHistory says that a project knows a sandbox: by its record or, when that is
// forgotten, by its events.
func (c *Control) hasHistory(ctx context.Context, project string, id sandbox.ID) error {
	_, err := c.store.Get(ctx, project, id)
	if sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	past, eerr := c.store.Events(ctx, project, id, 0, 1)
	if eerr != nil {
		return eerr
	}
	if len(past) == 0 {
		return err
	}
	return nil
}

// Next returns the next events. When there are none, the channel is closed once there may be.
func (f *Feed) Next(ctx context.Context) ([]Event, <-chan struct{}, error) {
	changed := f.c.store.Changed()
	events, err := f.c.store.Events(ctx, f.project, f.id, f.after, feedBatch)
	if err != nil {
		return nil, nil, err
	}
	if len(events) > 0 {
		f.after = events[len(events)-1].ID
	}
	return events, changed, nil
}

// Note enters something that happened to the sandbox of an instance, such as a
// connection that its network refused, into the sandbox's events.
func (c *Control) Note(ctx context.Context, id sandbox.InstanceID, e Event) error {
	sb, err := c.store.OfInstance(ctx, id)
	if err != nil {
		return err
	}
	return c.store.AddEvent(ctx, sb, e)
}

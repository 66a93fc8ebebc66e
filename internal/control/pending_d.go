package control

import (
	"context"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// WatchOptions says what a watch tells.
type WatchOptions struct {
	User            string
	Recursive, Info bool
}

// Watch tells what changes in a directory.
type Watch struct {
	events *connect.ServerStreamForClient[agentv1.WatchEvent]
	next   func() (*agentv1.WatchEvent, error)
	stop   func()
}

// Watch watches a directory.
func (c *Control) Watch(ctx context.Context, project string, id sandbox.ID, path string, o WatchOptions) (*Watch, error) {
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	events, err := g.Files().Watch(ctx, &agentv1.WatchRequest{Path: path, User: o.User, Recursive: o.Recursive, Info: o.Info})
	if err != nil {
		defer done()
		defer end()
		return nil, c.explain(ctx, sb, err)
	}
	w := &Watch{events: events, stop: func() { end(); done(); _ = events.Close() }}
	w.next = func() (*agentv1.WatchEvent, error) {
		if events.Receive() {
			return events.Msg(), nil
		}
		return nil, c.explain(ctx, sb, events.Err())
	}
	if _, err := w.next(); err != nil {
		defer w.stop()
		return nil, err
	}
	return w, nil
}

// Next returns a change or an overflow.
func (w *Watch) Next() (*agentv1.WatchEvent, error) { return w.next() }

// Close ends it.
func (w *Watch) Close() { w.stop() }

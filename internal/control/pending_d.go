package control

import (
	"context"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// PtySize is the size of a terminal.
type PtySize struct{ Columns, Rows int }

// Resize tells a program's terminal its size.
func (c *Control) Resize(ctx context.Context, project string, id sandbox.ID, run string, size PtySize) error {
	_, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ResizeResponse, error) {
		return g.Exec().Resize(ctx, &agentv1.ResizeRequest{RunId: run, Pty: &agentv1.PtySize{Columns: uint32(size.Columns), Rows: uint32(size.Rows)}})
	})
	return err
}

// Follow follows a run from what comes next.
func (c *Control) Follow(ctx context.Context, project string, id sandbox.ID, run string) (*Stream, error) {
	return c.follow(ctx, project, id, run, false, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.Event], error) {
		return g.Exec().Attach(ctx, &agentv1.AttachRequest{RunId: run, Latest: true})
	})
}

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

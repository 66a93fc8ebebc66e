package control

import (
	"context"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// WatchOptions say what a watch tells.
type WatchOptions struct {
	User      string // of the guest, whose rights decide what is seen; empty: root
	Recursive bool   // also in directories below, and in those that come later
	Info      bool   // describe what was created, written or changed
}

// Watch is the changes in a directory. It has one reader.
type Watch struct {
	c      *Control
	sb     sandbox.Sandbox
	ctx    context.Context
	cancel context.CancelFunc
	events *connect.ServerStreamForClient[agentv1.WatchEvent]
}

// Watch watches a directory of a sandbox, which is in use until Close. Whatever changes after it has
// returned is told.
func (c *Control) Watch(ctx context.Context, project string, id sandbox.ID, path string, o WatchOptions) (*Watch, error) {
	if err := firstOf(checkPath("path", path), checkUser(o.User)); err != nil {
		return nil, err
	}
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &Watch{c: c, sb: sb, ctx: ctx, cancel: func() { stop(); done() }}
	w.events, err = g.Files().Watch(ctx, &agentv1.WatchRequest{Path: path, User: o.User, Recursive: o.Recursive, Info: o.Info})
	if err != nil {
		err = c.explain(ctx, sb, tooOld(err, "watch files"))
		w.cancel()
		return nil, err
	}
	if err := w.begun(); err != nil {
		w.Close()
		return nil, err
	}
	c.answered(ctx, sb)
	return w, nil
}

// begun waits until the guest says that it watches.
func (w *Watch) begun() error {
	// A guest that answers is done with that in no time, but a large tree takes a while to walk through.
	for w.events.Receive() {
		if w.events.Msg().GetStarted() != nil {
			return nil
		}
	}
	return w.failed()
}

func (w *Watch) failed() error {
	if err := w.events.Err(); err != nil {
		return w.c.explain(w.ctx, w.sb, tooOld(err, "watch files"))
	}
	return sandbox.Errorf(sandbox.Unavailable, "stream_ended", "the sandbox ended the watch; watch again")
}

// Next returns the next change, or the news that changes were lost. It does not end but with an
// error: that of the sandbox's end, or file_not_found when the directory has gone.
func (w *Watch) Next() (*agentv1.WatchEvent, error) {
	for w.events.Receive() {
		e := w.events.Msg()
		switch e.Kind.(type) {
		case *agentv1.WatchEvent_Change, *agentv1.WatchEvent_Overflow:
			return e, nil
		}
		// A keep-alive, or a kind that a newer agent knows.
	}
	return nil, w.failed()
}

// Close ends the watch.
func (w *Watch) Close() {
	w.cancel()
	_ = w.events.Close() // says only what the cancel did
}

// tooOld gives a call that the agent does not know an error that says what to do.
func tooOld(err error, what string) error {
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		return err
	}
	return &sandbox.Error{
		Kind: sandbox.Unsupported, Code: "agent_too_old", Err: err,
		Message: "the sandbox has an agent of an older version of Ramet, which cannot " + what + "; make a new sandbox for it",
	}
}

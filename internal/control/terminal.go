package control

import (
	"context"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// PtySize is the size of a terminal in characters; each is 1 to 65535.
type PtySize struct{ Columns, Rows int }

// message is the size as the agent takes it; no size is no terminal.
func (p *PtySize) message() *agentv1.PtySize {
	if p == nil {
		return nil
	}
	return &agentv1.PtySize{Columns: uint32(p.Columns), Rows: uint32(p.Rows)}
}

func checkPty(size *PtySize) error {
	if size == nil {
		return nil
	}
	for _, n := range []int{size.Columns, size.Rows} {
		if n < 1 || n > 65535 {
			return sandbox.Errorf(sandbox.Invalid, "invalid_pty", "a terminal cannot have %d columns and %d rows; each is 1 to 65535", size.Columns, size.Rows)
		}
	}
	return nil
}

// maxTag bounds the tag of a run, in bytes.
const maxTag = 256

func checkTag(tag string) error {
	if len(tag) > maxTag || hasControl(tag) {
		return sandbox.Errorf(sandbox.Invalid, "invalid_tag", "the tag %s is too long or has control characters; it can have %d bytes", shown(tag), maxTag)
	}
	return nil
}

// knowsTerminals refuses to start a program on a terminal in a sandbox whose agent is
// older than those: it would start it without one. Such an agent does not know Resize
// either; one that knows it says that there is no such run yet.
func (c *Control) knowsTerminals(ctx context.Context, g Guest, r *agentv1.StartRequest) error {
	if r.GetPty() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.GuestTimeout, errNoAnswer)
	defer cancel()
	_, err := g.Exec().Resize(ctx, &agentv1.ResizeRequest{RunId: r.GetRunId(), Pty: r.GetPty()})
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return &sandbox.Error{
			Kind: sandbox.Unsupported, Code: "unsupported_by_agent",
			Message: "the sandbox was made by a version of Ramet without terminals; create another one, or run the program without a terminal", Err: err,
		}
	}
	return nil // whatever else is wrong, the start finds
}

// Resize sets the size of a run's terminal. Its foreground processes get SIGWINCH.
func (c *Control) Resize(ctx context.Context, project string, id sandbox.ID, run string, size PtySize) error {
	if err := firstOf(checkRunID(run), checkPty(&size)); err != nil {
		return err
	}
	_, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ResizeResponse, error) {
		return g.Exec().Resize(ctx, &agentv1.ResizeRequest{RunId: run, Pty: size.message()})
	})
	return err
}

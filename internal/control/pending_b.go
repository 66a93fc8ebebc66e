package control

import (
	"context"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// ContextRequest is a context to make.
type ContextRequest struct{ Language, Cwd string }

// ExecContext is an interpreter.
type ExecContext struct {
	ID, Language, Cwd string
	Running           bool
}

// Contexts lists them.
func (c *Control) Contexts(ctx context.Context, project string, id sandbox.ID) ([]ExecContext, error) {
	r, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ListContextsResponse, error) {
		return g.Exec().ListContexts(ctx, &agentv1.ListContextsRequest{})
	})
	var out []ExecContext
	for _, k := range r.GetContexts() {
		out = append(out, ExecContext{k.Id, k.Language, k.Cwd, k.Running})
	}
	return out, err
}

// RestartContext restarts one.
func (c *Control) RestartContext(ctx context.Context, project string, id sandbox.ID, name string) (ExecContext, error) {
	k, err := call(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.Context, error) {
		return g.Exec().RestartContext(ctx, &agentv1.RestartContextRequest{Id: name})
	})
	return ExecContext{k.GetId(), k.GetLanguage(), k.GetCwd(), k.GetRunning()}, err
}

// RemoveContext removes one.
func (c *Control) RemoveContext(ctx context.Context, project string, id sandbox.ID, name string) error {
	_, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.RemoveContextResponse, error) {
		return g.Exec().RemoveContext(ctx, &agentv1.RemoveContextRequest{Id: name})
	})
	return err
}

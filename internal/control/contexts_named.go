package control

import (
	"context"
	"errors"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// EnsureContext makes a context whose id its caller has chosen, unless there is one, and says
// whether it did. A surface that has interpreters of its own finds them by such an id.
func (c *Control) EnsureContext(ctx context.Context, project string, id sandbox.ID, name string, r ContextRequest) (made bool, err error) {
	if err := checkCwd(r.Cwd); err != nil {
		return false, err
	}
	_, err = call(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.Context, error) {
		return g.Exec().CreateContext(ctx, &agentv1.CreateContextRequest{Id: name, Language: r.Language, Cwd: r.Cwd})
	})
	var e *sandbox.Error
	if errors.As(err, &e) && e.Code == "already_exists" {
		return false, nil
	}
	return err == nil, err
}

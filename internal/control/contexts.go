package control

import (
	"context"
	"errors"
	"strings"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// contextTimeout bounds how long an interpreter may take to start.
const contextTimeout = time.Minute

// The languages that code is given in, and the names under which clients know them.
var languageNames = map[string]string{
	"python": "python", "py": "python", "python3": "python", "ipython": "python",
	"javascript": "javascript", "js": "javascript", "node": "javascript",
	"typescript": "typescript", "ts": "typescript",
	"bash": "bash", "sh": "bash", "shell": "bash",
	"r": "r", "java": "java",
}

// language returns the name that a language has in guests.
func language(name string) (string, error) {
	known, ok := languageNames[strings.ToLower(name)]
	switch {
	case !ok:
		return "", sandbox.Errorf(sandbox.Invalid, "invalid_language", "language %s is not known; use python, javascript or bash", shown(name))
	case known == "r" || known == "java":
		return "", sandbox.Errorf(sandbox.Invalid, "language_not_installed", "%s is not installed in sandboxes; use python, javascript or bash", shown(name))
	}
	return known, nil
}

// ContextRequest says what kind of interpreter to make.
type ContextRequest struct {
	Language string // "" is python
	Cwd      string // "" is the home of root
}

// ExecContext is an interpreter of a sandbox, with a state and a queue of its own.
type ExecContext struct {
	ID       string
	Language string
	Cwd      string
	// Running: its interpreter has been started.
	Running bool
}

func execContext(c *agentv1.Context) ExecContext {
	return ExecContext{ID: c.GetId(), Language: c.GetLanguage(), Cwd: c.GetCwd(), Running: c.GetRunning()}
}

// CreateContext starts an interpreter and returns when it is ready.
func (c *Control) CreateContext(ctx context.Context, project string, id sandbox.ID, r ContextRequest) (ExecContext, error) {
	if r.Language == "" {
		r.Language = "python"
	}
	lang, err := language(r.Language)
	if err == nil && lang == "typescript" {
		err = sandbox.Errorf(sandbox.Invalid, "invalid_language", "contexts are of python, javascript or bash; run typescript in one of javascript")
	}
	if err := firstOf(err, checkCwd(r.Cwd)); err != nil {
		return ExecContext{}, err
	}
	req := &agentv1.CreateContextRequest{Id: "ctx_" + string(sandbox.NewInstanceID()), Language: lang, Cwd: r.Cwd}
	made, err := call(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.Context, error) {
		ctx, cancel := context.WithTimeout(ctx, contextTimeout)
		defer cancel()
		return g.Exec().CreateContext(ctx, req)
	})
	return execContext(made), contextError(err)
}

// Contexts lists the interpreters of a sandbox, the first one first.
func (c *Control) Contexts(ctx context.Context, project string, id sandbox.ID) ([]ExecContext, error) {
	r, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ListContextsResponse, error) {
		return g.Exec().ListContexts(ctx, &agentv1.ListContextsRequest{})
	})
	if err != nil {
		return nil, err
	}
	list := make([]ExecContext, 0, len(r.GetContexts()))
	for _, found := range r.GetContexts() {
		list = append(list, execContext(found))
	}
	return list, nil
}

// RestartContext replaces an interpreter: its state is lost, and the call that it runs ends.
func (c *Control) RestartContext(ctx context.Context, project string, id sandbox.ID, name string) (ExecContext, error) {
	if err := checkContext(name); err != nil {
		return ExecContext{}, err
	}
	restarted, err := call(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.Context, error) {
		ctx, cancel := context.WithTimeout(ctx, contextTimeout)
		defer cancel()
		return g.Exec().RestartContext(ctx, &agentv1.RestartContextRequest{Id: name})
	})
	return execContext(restarted), contextError(err)
}

// RemoveContext ends an interpreter and the calls that it has. The first one stays.
func (c *Control) RemoveContext(ctx context.Context, project string, id sandbox.ID, name string) error {
	if err := checkContext(name); err != nil {
		return err
	}
	_, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.RemoveContextResponse, error) {
		return g.Exec().RemoveContext(ctx, &agentv1.RemoveContextRequest{Id: name})
	})
	return contextError(err)
}

func checkContext(name string) error {
	if name == "" || len(name) > 128 || hasControl(name) {
		return sandbox.Errorf(sandbox.NotFound, "context_not_found", "context not found")
	}
	return nil
}

// contextError gives what a guest says of a context the words that clients look for.
func contextError(err error) error {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return err
	}
	code := map[string]string{
		"not_found": "context_not_found", "guest_exhausted": "too_many_contexts", "failed_precondition": "context_failed",
	}[e.Code]
	if code == "" {
		return err
	}
	return &sandbox.Error{Kind: e.Kind, Code: code, Message: e.Message, Err: err}
}

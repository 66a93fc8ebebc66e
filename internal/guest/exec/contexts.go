package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// Ids of the contexts that runs without one use.
const (
	defaultContext    = "default"
	javascriptContext = "javascript"
)

// contexts are the interpreters of the machine. The first one is always there, others
// come by CreateContext, and one for JavaScript by the first run of it.
type contexts struct {
	s     *Service
	first *repl

	mu     sync.Mutex
	byID   map[string]*repl
	order  []*repl // oldest first
	env    map[string]string
	closed bool
}

func (c *contexts) init(s *Service) {
	c.s = s
	c.first = &repl{s: s, id: defaultContext, lang: languages["python"]}
	c.byID = map[string]*repl{defaultContext: c.first}
	c.order = []*repl{c.first}
}

// find returns the context to run in; language may be empty where a context is named.
func (c *contexts) find(id, language string) (*repl, error) {
	if id != "" {
		r, err := c.get(id)
		if err != nil {
			return nil, err
		}
		fits := language == "" || language == r.lang.name || language == typescript && r.lang.name == "javascript"
		if !fits {
			return nil, invalid("context %s runs %s, not %s", id, r.lang.name, language)
		}
		return r, nil
	}
	switch language {
	case "python":
		return c.first, nil
	case "javascript", typescript:
		return c.add(javascriptContext, languages["javascript"], "", true)
	}
	return nil, unknownLanguage(language)
}

func (c *contexts) get(id string) (*repl, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byID[id]; r != nil {
		return r, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no context %q", id))
}

// add makes a context whose interpreter does not run yet. With known one that is there is as good.
func (c *contexts) add(id string, l *language, cwd string, known bool) (*repl, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byID[id]; r != nil {
		if known && r.lang == l {
			return r, nil
		}
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("there is already a context %q", id))
	}
	if c.closed {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the agent is shutting down"))
	}
	if len(c.order) >= c.s.cfg.MaxContexts {
		return nil, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("there are %d contexts already, which is the limit; remove one", len(c.order)))
	}
	if err := c.checkMemory(l); err != nil {
		return nil, err
	}
	r := &repl{s: c.s, id: id, lang: l, cwd: cwd, env: c.env}
	c.byID[id] = r
	c.order = append(c.order, r)
	return r, nil
}

// remove forgets a context and ends its interpreter.
func (c *contexts) remove(r *repl) {
	c.mu.Lock()
	if c.byID[r.id] == r {
		delete(c.byID, r.id)
		for n, other := range c.order {
			if other == r {
				c.order = append(c.order[:n:n], c.order[n+1:]...)
				break
			}
		}
	}
	c.mu.Unlock()
	r.close("the context was removed")
}

func (c *contexts) list() []*repl {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*repl(nil), c.order...)
}

// renew tells all interpreters. One that cannot be told is no reason to leave out the others.
func (c *contexts) renew(n Renewal) error {
	c.mu.Lock()
	c.env = n.Env
	all := append([]*repl(nil), c.order...)
	c.mu.Unlock()
	var errs []error
	for _, r := range all {
		if err := r.renew(n); err != nil {
			errs = append(errs, fmt.Errorf("context %s: %w", r.id, err))
		}
	}
	return errors.Join(errs...)
}

func (c *contexts) close() {
	c.mu.Lock()
	c.closed = true
	all := append([]*repl(nil), c.order...)
	c.mu.Unlock()
	for _, r := range all {
		r.close("the agent is shutting down")
	}
}

// info says what a context is.
func (r *repl) info() *agentv1.Context {
	cwd := r.cwd
	if cwd == "" {
		cwd = "/"
		if user, err := r.s.cfg.Users.Lookup("root"); err == nil {
			cwd = r.directory(user)
		}
	}
	return &agentv1.Context{Id: r.id, Language: r.lang.name, Cwd: cwd, Running: r.running()}
}

// CreateContext implements agentv1connect.ExecHandler. It returns when the interpreter is ready.
func (s *Service) CreateContext(ctx context.Context, req *agentv1.CreateContextRequest) (*agentv1.Context, error) {
	id := req.GetId()
	if id == "" || len(id) > 128 || strings.ContainsAny(id, "/\x00") {
		return nil, invalid("a context's id has 1 to 128 bytes and no slash")
	}
	name := languageName(req.GetLanguage())
	if name == "" {
		name = "python"
	}
	if name == typescript {
		return nil, invalid("a context has the language python, javascript or bash; run typescript in one of javascript")
	}
	l := languages[name]
	if l == nil {
		return nil, unknownLanguage(name)
	}
	cwd := req.GetCwd()
	if cwd != "" {
		if !filepath.IsAbs(cwd) {
			user, err := s.cfg.Users.Lookup("root")
			if err != nil {
				return nil, err
			}
			cwd = filepath.Join(user.Home, cwd)
		}
		if info, err := os.Stat(cwd); err != nil {
			return nil, precondition("there is no directory %s", cwd)
		} else if !info.IsDir() {
			return nil, precondition("%s is not a directory", cwd)
		}
	}
	s.awaitMemory(ctx, l)
	r, err := s.contexts.add(id, l, cwd, false)
	if err != nil {
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		s.contexts.remove(r)
		return nil, precondition("context %s: %w", id, err)
	}
	return r.info(), nil
}

// ListContexts implements agentv1connect.ExecHandler: oldest first.
func (s *Service) ListContexts(context.Context, *agentv1.ListContextsRequest) (*agentv1.ListContextsResponse, error) {
	out := &agentv1.ListContextsResponse{}
	for _, r := range s.contexts.list() {
		out.Contexts = append(out.Contexts, r.info())
	}
	return out, nil
}

// RestartContext implements agentv1connect.ExecHandler. It returns when the new interpreter is ready.
func (s *Service) RestartContext(ctx context.Context, req *agentv1.RestartContextRequest) (*agentv1.Context, error) {
	r, err := s.contexts.get(req.GetId())
	if err != nil {
		return nil, err
	}
	if err := r.restart(ctx); err != nil {
		return nil, precondition("context %s: %w", r.id, err)
	}
	return r.info(), nil
}

// RemoveContext implements agentv1connect.ExecHandler. Calls in it end.
func (s *Service) RemoveContext(_ context.Context, req *agentv1.RemoveContextRequest) (*agentv1.RemoveContextResponse, error) {
	r, err := s.contexts.get(req.GetId())
	if err != nil {
		return nil, err
	}
	if r == s.contexts.first {
		return nil, precondition("the context %q cannot be removed; restart it", r.id)
	}
	s.contexts.remove(r)
	return &agentv1.RemoveContextResponse{}, nil
}

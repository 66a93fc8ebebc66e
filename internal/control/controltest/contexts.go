package controltest

import (
	"context"
	"errors"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// maxContexts is small, so that a test reaches it.
const maxContexts = 4

// findContext returns a copy of a context.
func (s execService) findContext(id string) (*agentv1.Context, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	for _, c := range s.a.contexts {
		if c.Id == id {
			return proto.CloneOf(c), nil
		}
	}
	return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no context "+id))
}

// CreateContext makes a context.
func (s execService) CreateContext(_ context.Context, req *agentv1.CreateContextRequest) (*agentv1.Context, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if len(s.a.contexts) >= maxContexts {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("there are 4 contexts already, which is the limit; remove one"))
	}
	c := &agentv1.Context{Id: req.Id, Language: req.Language, Cwd: req.Cwd, Running: true}
	if c.Cwd == "" {
		c.Cwd = "/root"
	}
	s.a.contexts = append(s.a.contexts, c)
	return proto.CloneOf(c), nil
}

// ListContexts lists contexts.
func (s execService) ListContexts(context.Context, *agentv1.ListContextsRequest) (*agentv1.ListContextsResponse, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	res := &agentv1.ListContextsResponse{}
	for _, c := range s.a.contexts {
		res.Contexts = append(res.Contexts, proto.CloneOf(c))
	}
	return res, nil
}

// RestartContext finds the context: the processes of this fake keep no state.
func (s execService) RestartContext(_ context.Context, req *agentv1.RestartContextRequest) (*agentv1.Context, error) {
	return s.findContext(req.Id)
}

// RemoveContext removes a context.
func (s execService) RemoveContext(_ context.Context, req *agentv1.RemoveContextRequest) (*agentv1.RemoveContextResponse, error) {
	if req.Id == "default" {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the context default cannot be removed; restart it"))
	}
	if _, err := s.findContext(req.Id); err != nil {
		return nil, err
	}
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.contexts = slices.DeleteFunc(s.a.contexts, func(c *agentv1.Context) bool { return c.Id == req.Id })
	return &agentv1.RemoveContextResponse{}, nil
}

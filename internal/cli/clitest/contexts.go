package clitest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// all returns the contexts of a sandbox, the first one first.
func (b *box) all() []v1.Context {
	return append([]v1.Context{{Id: "default", Language: "python", Cwd: "/root", Running: true}}, b.contexts...)
}

// context returns a context, or answers that there is none.
func (b *box) context(w http.ResponseWriter, id string) *v1.Context {
	for _, c := range b.all() {
		if c.Id == id {
			return &c
		}
	}
	fail(w, 404, "context_not_found", fmt.Sprintf("there is no context %q", id))
	return nil
}

// CreateContext implements the API: ids count up.
func (s *Server) CreateContext(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	req, ok := read[v1.ContextCreate](w, r)
	b := s.live(w, r, id)
	if b == nil || !ok {
		return
	}
	c := v1.Context{
		Id: "ctx_" + strings.Repeat(fmt.Sprint(len(b.contexts)+1), 32), Language: valueOr(req.Language, "python"),
		Cwd: valueOr(req.Cwd, "/root"), Running: true,
	}
	b.contexts = append(b.contexts, c)
	w.WriteHeader(http.StatusCreated)
	encode(w, c)
}

// ListContexts implements the API.
func (s *Server) ListContexts(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	if b := s.live(w, r, id); b != nil {
		answer(w, v1.ContextList{Contexts: b.all()})
	}
}

// RestartContext implements the API.
func (s *Server) RestartContext(w http.ResponseWriter, r *http.Request, id v1.SandboxID, context v1.ContextID) {
	b := s.live(w, r, id)
	if b == nil {
		return
	}
	if c := b.context(w, context); c != nil {
		answer(w, c)
	}
}

// DeleteContext implements the API.
func (s *Server) DeleteContext(w http.ResponseWriter, r *http.Request, id v1.SandboxID, context v1.ContextID) {
	b := s.live(w, r, id)
	if b == nil || b.context(w, context) == nil {
		return
	}
	if context == "default" {
		fail(w, 409, "context_failed", "the context default cannot be removed; restart it")
		return
	}
	b.contexts = slices.DeleteFunc(b.contexts, func(c v1.Context) bool { return c.Id == context })
	w.WriteHeader(http.StatusNoContent)
}

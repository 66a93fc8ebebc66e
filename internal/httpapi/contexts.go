package httpapi

import (
	"net/http"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func contextBody(c control.ExecContext) rametv1.Context {
	return rametv1.Context{Id: c.ID, Language: c.Language, Cwd: c.Cwd, Running: c.Running}
}

// CreateContext starts an interpreter.
func (s *Server) CreateContext(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	var body rametv1.ContextCreate
	sb, err := sandbox.ParseID(id)
	if err == nil {
		err = decode(w, r, maxBody, true, &body)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	c, err := s.control.CreateContext(r.Context(), project(r), sb, control.ContextRequest{Language: value(body.Language), Cwd: value(body.Cwd)})
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeStatus(w, r, http.StatusCreated, contextBody(c))
}

// ListContexts lists interpreters.
func (s *Server) ListContexts(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	sb, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	list, err := s.control.Contexts(r.Context(), project(r), sb)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.ContextList{Contexts: make([]rametv1.Context, 0, len(list))}
	for _, c := range list {
		out.Contexts = append(out.Contexts, contextBody(c))
	}
	s.writeJSON(w, r, out)
}

// RestartContext replaces an interpreter.
func (s *Server) RestartContext(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, context rametv1.ContextID) {
	sb, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	c, err := s.control.RestartContext(r.Context(), project(r), sb, context)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, contextBody(c))
}

// DeleteContext ends an interpreter.
func (s *Server) DeleteContext(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, context rametv1.ContextID) {
	sb, err := sandbox.ParseID(id)
	if err == nil {
		err = s.control.RemoveContext(r.Context(), project(r), sb, context)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

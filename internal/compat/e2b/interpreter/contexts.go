package interpreter

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"

	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// home is where contexts begin whose maker does not say.
const home = "/home/user"

// The contexts of runs that name none. The first one is the machine's own, which is always ready.
const (
	pythonDefault     = "default"
	javascriptDefault = "javascript"
	bashDefault       = "bash"
)

// The ids of contexts that are made here begin with their language. It tells more than the guest knows: contexts
// for TypeScript are of JavaScript, which knows both.
const (
	pythonID     = "python-"
	typescriptID = "typescript-"
)

// aliases are other names of languages.
var aliases = map[string]string{"": "python", "py": "python", "python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript", "sh": "bash"}

func language(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if l, ok := aliases[name]; ok {
		return l
	}
	return name
}

// place is where code runs.
type place struct {
	context  string // what a client knows it by
	language string // "" is the context's
}

// request returns what is to run there.
func (p place) request(code string, env map[string]string) control.RunRequest {
	r := control.RunRequest{Code: code, Env: env, Context: p.context, Language: p.language}
	if p.context == pythonDefault {
		r.Context, r.Language, r.BeginIn = "", "python", home
	}
	return r
}

// find says where code runs that names a context, a language or neither.
func find(contextID, lang string) (place, error) {
	if contextID != "" {
		p := place{context: contextID}
		if strings.HasPrefix(contextID, typescriptID) {
			p.language = "typescript"
		}
		return p, nil
	}
	switch lang = language(lang); lang {
	case "python":
		return place{context: pythonDefault, language: lang}, nil
	case "javascript":
		return place{context: javascriptDefault}, nil
	case "typescript":
		return place{context: javascriptDefault, language: lang}, nil
	case "bash":
		return place{context: bashDefault}, nil
	}
	return place{}, unknownLanguage(lang)
}

func unknownLanguage(name string) error {
	if len(name) > 40 {
		name = name[:40] + "…"
	}
	return &refusal{http.StatusBadRequest, "the language " + strings.ToValidUTF8(name, "?") + " is not here; use python, javascript, typescript or bash"}
}

// isPython says whether code runs in Python, as far as the id tells.
func (p place) isPython() bool {
	return p.context == pythonDefault || strings.HasPrefix(p.context, pythonID)
}

// languageOf are those of the contexts that need not be made.
var languageOf = map[string]string{javascriptDefault: "javascript", bashDefault: "bash"}

// prepare makes a default context. The machine's own interpreter is always there: its first call says where it begins.
func (s *Server) prepare(ctx context.Context, t traffic.Target, name string) error {
	lang := languageOf[name]
	if lang == "" || s.known.isPlaced(t.ID, name) {
		return nil
	}
	_, err := s.control.EnsureContext(ctx, t.Project, t.ID, name, control.ContextRequest{Language: lang, Cwd: home})
	if err == nil {
		s.known.setPlaced(t.ID, name)
	}
	return err
}

// shownContext is a context as clients know it.
type shownContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func shown(k control.ExecContext) shownContext {
	c := shownContext{k.ID, k.Language, k.Cwd}
	if k.ID == pythonDefault {
		c.Cwd = home
	}
	if strings.HasPrefix(k.ID, typescriptID) {
		c.Language = "typescript"
	}
	return c
}

// listContexts lists them. Those that are there without being made are in the list, too.
func (s *Server) listContexts(w http.ResponseWriter, r *http.Request) {
	t := targetOf(r)
	list, err := s.control.Contexts(r.Context(), t.Project, t.ID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := make([]shownContext, 0, len(list)+1)
	found := false
	for _, k := range list {
		found = found || k.ID == javascriptDefault
		out = append(out, shown(k))
	}
	if !found {
		out = append(out, shownContext{javascriptDefault, "javascript", home})
	}
	writeJSON(w, out)
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := ascii(v)
	if err != nil { // it is made of strings
		text(w, http.StatusInternalServerError, "the server failed")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a client that is gone is its own business
}

// createContext makes one.
func (s *Server) createContext(w http.ResponseWriter, r *http.Request) {
	t := targetOf(r)
	var req struct{ Language, Cwd *string }
	if err := decode(w, r, &req); err != nil {
		s.fail(w, r, err)
		return
	}
	lang, cwd := language(value(req.Language)), value(req.Cwd)
	if cwd == "" {
		cwd = home
	}
	made := lang
	switch lang {
	case "python", "javascript", "bash":
	case "typescript":
		made = "javascript"
	default:
		s.fail(w, r, unknownLanguage(lang))
		return
	}
	id := lang + "-" + rand.Text()
	if _, err := s.control.EnsureContext(r.Context(), t.Project, t.ID, id, control.ContextRequest{Language: made, Cwd: cwd}); err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, shownContext{id, lang, cwd})
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// restartContext gives a context a new interpreter.
func (s *Server) restartContext(w http.ResponseWriter, r *http.Request) {
	t, id := targetOf(r), r.PathValue("id")
	if err := s.prepare(r.Context(), t, id); err != nil {
		s.fail(w, r, err)
		return
	}
	s.known.forget(t.ID, id)
	k, err := s.control.RestartContext(r.Context(), t.Project, t.ID, id)
	if err != nil {
		s.fail(w, r, contextError(err, id))
		return
	}
	writeJSON(w, shown(k))
}

// removeContext ends a context.
func (s *Server) removeContext(w http.ResponseWriter, r *http.Request) {
	t, id := targetOf(r), r.PathValue("id")
	s.known.forget(t.ID, id)
	if err := s.control.RemoveContext(r.Context(), t.Project, t.ID, id); err != nil {
		s.fail(w, r, contextError(err, id))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// contextError says in E2B's words that there is no such context.
func contextError(err error, id string) error {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind == sandbox.NotFound && !gone[e.Code] {
		if len(id) > 100 {
			id = id[:100] + "…"
		}
		return &refusal{http.StatusNotFound, "Context " + strings.ToValidUTF8(id, "?") + " not found"}
	}
	return err
}

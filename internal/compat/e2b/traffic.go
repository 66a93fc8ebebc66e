package e2b

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"ramet.dev/ramet/internal/compat/e2b/traffic"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// headerTraffic has the token of a sandbox whose ports are private.
const headerTraffic = "E2b-Traffic-Access-Token"

// defaultUser is who calls are made as that name nobody.
const defaultUser = "user"

// serveTraffic serves a request to a port of a sandbox. Its callers have no key: what they
// may the tokens of the sandbox say.
func (s *Server) serveTraffic(w http.ResponseWriter, r *http.Request, n named) {
	httpapi.ShapeErrors(r, s.writeError)
	if n.port == 0 {
		httpapi.HurryBody(r)
		s.front.Fail(w, r, sandbox.Errorf(sandbox.Invalid, "invalid_port", "the port of the sandbox is not a number from 1 to 65535"))
		return
	}
	service := s.service(n.port)
	httpapi.NoteRoute(r, service.route)
	if !service.preview && allowOrigins(w, r) {
		return // whether or not the sandbox is there
	}
	id, err := parseID(n.id)
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.control.OfTraffic(r.Context(), id)
	}
	if err == nil && !reachable(sb) {
		err = errGone
	}
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		httpapi.HurryBody(r)
		httpapi.NoteError(r, err)
		s.writeGone(w, r, n.id)
		return
	case err != nil:
		httpapi.HurryBody(r)
		s.front.Fail(w, r, err)
		return
	}
	httpapi.NoteSandbox(r, sb.ID)
	s.serveReachable(w, r, sb, n, service)
}

var errGone = sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "the sandbox is gone or paused")

// reachable says whether the ports of a sandbox lead anywhere, if need be after a wake.
func reachable(sb sandbox.Sandbox) bool {
	switch sb.State {
	case sandbox.Running:
		return true
	case sandbox.Waking: // somebody has asked for that
		return true
	case sandbox.Hibernating, sandbox.Hibernated:
		return !sb.Deadline.ManualWake
	}
	return false
}

// service is who answers at a port.
type service struct {
	route   string
	preview bool
	serve   Service
}

func (s *Server) service(port int) service {
	switch port {
	case traffic.EnvdPort:
		return service{route: "e2b/envd", serve: s.cfg.Envd}
	case traffic.InterpreterPort:
		return service{route: "e2b/interpreter", serve: s.cfg.Interpreter}
	}
	return service{route: "preview", preview: true}
}

func (s *Server) serveReachable(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox, n named, to service) {
	if sb.PrivatePorts && n.port != traffic.EnvdPort && !same(r.Header.Get(headerTraffic), s.trafficToken(sb.ID)) {
		httpapi.HurryBody(r)
		s.write(w, http.StatusForbidden, sandboxError{
			Sandbox: n.id, Code: http.StatusForbidden,
			Message: "the ports of this sandbox are private: send its traffic access token in the header " + headerTraffic,
		})
		return
	}
	if sb.Deadline.ManualWake {
		// It may be paused right now.
		r = r.WithContext(control.WithoutWake(r.Context()))
	}
	if to.preview {
		s.servePort(w, r, sb, n)
		return
	}
	if r.URL.Path == "/process.Process/StreamInput" {
		httpapi.WaitForBody(r) // a person may type it
	} else {
		httpapi.RollBody(r)
	}
	if to.serve == nil {
		s.unsupported(w, r)
		return
	}
	to.serve.Serve(w, r, traffic.Target{
		Project: sb.Project, ID: sb.ID, Instance: sb.Instance, Shown: sb.ID.Alphanumeric(), Token: s.envdToken(sb.ID), User: defaultUser,
	})
}

// servePort passes a request on to what listens in the guest.
func (s *Server) servePort(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox, n named) {
	if s.cfg.Preview == nil {
		s.unsupported(w, r)
		return
	}
	for _, h := range []string{headerTraffic, headerSandbox, headerPort} {
		r.Header.Del(h) // they are for this server, and what is in the guest may be anybody's
	}
	httpapi.WaitForBody(r)
	s.cfg.Preview(w, r, Port{Project: sb.Project, ID: sb.ID, Port: n.port})
}

// serveSigned serves a link to a file that names no sandbox: it is signed with the token of
// one, which is found by that.
func (s *Server) serveSigned(w http.ResponseWriter, r *http.Request) {
	httpapi.ShapeErrors(r, s.writeError)
	to := s.service(traffic.EnvdPort)
	httpapi.NoteRoute(r, to.route)
	if allowOrigins(w, r) {
		return
	}
	list, err := s.control.LiveForTraffic(r.Context())
	if err != nil {
		httpapi.HurryBody(r)
		s.front.Fail(w, r, err)
		return
	}
	q := r.URL.Query()
	for _, sb := range list {
		if signedWith(s.envdToken(sb.ID), r.Method, q) {
			httpapi.NoteSandbox(r, sb.ID)
			s.serveReachable(w, r, sb, named{id: sb.ID.Alphanumeric(), port: traffic.EnvdPort}, to)
			return
		}
	}
	httpapi.HurryBody(r)
	s.write(w, http.StatusUnauthorized, apiError{Code: http.StatusUnauthorized, Message: "the link is not signed with the token of a sandbox that runs"})
}

// sandboxError is what the clients read of a sandbox that does not answer.
type sandboxError struct {
	Sandbox string `json:"sandboxId"`
	Message string `json:"message"`
	Port    int    `json:"port,omitempty"`
	Code    int    `json:"code"`
	hint    string // for people
}

const (
	messageGone = "The sandbox was not found"
	hintGone    = "It has ended, or it is paused."
)

// writeGone answers for a sandbox that is gone or paused.
func (s *Server) writeGone(w http.ResponseWriter, r *http.Request, id string) {
	s.writeDead(w, r, sandboxError{Sandbox: id, Message: messageGone, Code: http.StatusBadGateway, hint: hintGone})
}

func (s *Server) writeDead(w http.ResponseWriter, r *http.Request, e sandboxError) {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.write(w, e.Code, e)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(e.Code)
	if err := deadPage.Execute(w, map[string]any{"Message": e.Message, "Sandbox": e.Sandbox, "Port": e.Port, "Hint": e.hint}); err != nil {
		httpapi.NoteError(r, fmt.Errorf("write a page: %w", err))
	}
}

var deadPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Message}}</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh auto;padding:0 1em}code{word-break:break-all}</style>
<h1>{{.Message}}</h1>
<p>Sandbox <code>{{.Sandbox}}</code>{{if .Port}}, port <code>{{.Port}}</code>{{end}}. {{.Hint}}</p>
`))

// PreviewFailed answers for a request that Config.Preview could not pass on.
func (s *Server) PreviewFailed(w http.ResponseWriter, r *http.Request, p Port, err error) {
	httpapi.NoteError(r, err)
	e := sandboxError{Sandbox: p.ID.Alphanumeric(), Message: messageGone, Code: http.StatusBadGateway, hint: hintGone}
	var known *sandbox.Error
	if errors.As(err, &known); known == nil {
		known = &sandbox.Error{}
	}
	switch {
	case known.Code == "port_closed":
		e.Message, e.Port = "The sandbox is running but port is not open", p.Port
		e.hint = "Start a server on this port in the sandbox, then load this page again."
	case known.Kind != sandbox.NotFound && known.Kind != sandbox.Conflict:
		status, shown := httpapi.Describe(r, err)
		e.Message, e.Port, e.hint = shown.Error, p.Port, ""
		if known.Kind == sandbox.Unavailable && known.Code != "bad_answer" {
			e.Code = status
		}
	}
	s.writeDead(w, r, e)
}

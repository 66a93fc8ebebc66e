package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// envdVersion tells the clients which abilities the services in a sandbox have: those of
// E2B's own of this version.
const envdVersion = "0.6.3"

// clientID is a field that clients still expect and nobody uses.
const clientID = "ramet"

// baseTemplate is what the clients call the template that they start when they are told none.
const baseTemplate = "base"

// newSandbox is the body of a create, of both generations.
type newSandbox struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"` // seconds
	AutoPause       *bool             `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *autoResume       `json:"autoResume"`
	AllowInternet   *bool             `json:"allow_internet_access"`
	Network         *networkConfig    `json:"network"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	VolumeMounts    []any             `json:"volumeMounts"`
	MCP             json.RawMessage   `json:"mcp"`
	IAM             json.RawMessage   `json:"iam"`
}

type autoResume struct {
	Enabled bool `json:"enabled"`
}

// Default timeouts of a create, by generation, and of a connect.
const (
	timeoutV1 = 15 * time.Second
	timeoutV2 = 300 * time.Second
)

func (s *Server) createV1(w http.ResponseWriter, r *http.Request) {
	s.front.Once(w, r, func(w http.ResponseWriter, r *http.Request) { s.create(w, r, timeoutV1) })
}

func (s *Server) createV2(w http.ResponseWriter, r *http.Request) {
	s.front.Once(w, r, func(w http.ResponseWriter, r *http.Request) { s.create(w, r, timeoutV2) })
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, otherwise time.Duration) {
	var body newSandbox
	err := read(w, r, &body)
	var req control.CreateRequest
	if err == nil {
		req, err = body.request(otherwise)
	}
	if err == nil && body.TemplateID == "" {
		err = sandbox.Errorf(sandbox.Invalid, "missing_template", "templateID is missing; use %q or the name of a template", baseTemplate)
	}
	var sb sandbox.Sandbox
	if err == nil {
		req.Idempotency = httpapi.IdempotencyTag(r)
		sb, err = s.createFrom(r.Context(), httpapi.Project(r), body.TemplateID, req)
	}
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	httpapi.NoteSandbox(r, sb.ID)
	s.write(w, http.StatusCreated, s.started(sb))
}

// request says what sandbox is asked for, but for what it starts from.
func (b newSandbox) request(otherwise time.Duration) (control.CreateRequest, error) {
	req := control.CreateRequest{Metadata: b.Metadata, IdleTimeout: control.Never, MaxLifetime: control.Never}
	if req.Metadata == nil {
		req.Metadata = map[string]string{} // a snapshot's are not handed on
	}
	if len(b.EnvVars) > 0 {
		req.Env = b.EnvVars
	}
	for _, f := range []struct {
		name string
		here bool
	}{{"mcp", given(b.MCP)}, {"iam", given(b.IAM)}, {"volumeMounts", len(b.VolumeMounts) > 0}} {
		if f.here {
			return req, notYet("%s is", f.name)
		}
	}
	d := sandbox.Deadline{Then: sandbox.AtEndDelete, ManualWake: b.AutoResume == nil || !b.AutoResume.Enabled}
	var err error
	if d.After, err = seconds("timeout", b.Timeout, otherwise); err != nil {
		return req, err
	}
	if value(b.AutoPause) {
		d.Then = sandbox.AtEndHibernate
		if b.AutoPauseMemory != nil && !*b.AutoPauseMemory {
			d.Then = sandbox.AtEndHibernateDisk
		}
	}
	if !d.ManualWake && d.Then != sandbox.AtEndHibernate {
		return req, sandbox.Errorf(sandbox.Invalid, "invalid_auto_resume", "autoResume needs autoPause, with the memory: nothing else can go on with the request that wakes it")
	}
	req.Deadline = &d
	private := false
	if b.Network != nil {
		private = b.Network.AllowPublicTraffic != nil && !*b.Network.AllowPublicTraffic
	}
	req.PrivatePorts = &private
	return req, b.network(&req)
}

func given(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "{}"
}

func notYet(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Unsupported, "not_supported", format+" not supported yet by this server", args...)
}

// maxSeconds is a year.
const maxSeconds = 366 * 24 * 3600

// seconds reads a time that is more than nothing.
func seconds(name string, v *int64, otherwise time.Duration) (time.Duration, error) {
	if v == nil {
		return otherwise, nil
	}
	if *v < 1 || *v > maxSeconds {
		return 0, sandbox.Errorf(sandbox.Invalid, "invalid_timeout", "%s is %d; it can be 1 to %d seconds", name, *v, maxSeconds)
	}
	return time.Duration(*v) * time.Second, nil
}

// createFrom makes a sandbox of what the clients call a template: one, or a snapshot, by its
// id or its name.
func (s *Server) createFrom(ctx context.Context, project, template string, req control.CreateRequest) (sandbox.Sandbox, error) {
	if id, ok := snapshotID(template); ok {
		req.Checkpoint = id
		sb, _, err := s.control.Create(ctx, project, req)
		if sandbox.KindOf(err) == sandbox.NotFound {
			err = templateNotFound(template)
		}
		return sb, err
	}
	req.Template = s.templateName(template)
	sb, _, err := s.control.Create(ctx, project, req)
	if sandbox.KindOf(err) != sandbox.NotFound && !isCode(err, "invalid_template_name") {
		return sb, err
	}
	snap, serr := s.snapshotNamed(ctx, project, template)
	if serr != nil {
		if sandbox.KindOf(serr) == sandbox.NotFound {
			serr = templateNotFound(template)
		}
		return sb, serr
	}
	req.Template, req.Checkpoint = "", snap.ID
	sb, _, err = s.control.Create(ctx, project, req)
	return sb, err
}

func templateNotFound(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "template_not_found", "template %s not found; there are those that 'ramet template ls' lists, and snapshots", short(name))
}

func isCode(err error, code string) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Code == code
}

// templateName is our name of a template. The clients' own name of the one to start by default
// means the server's.
func (s *Server) templateName(template string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(template, ":latest"), ":default")
	if name == baseTemplate {
		return s.cfg.Template
	}
	return name
}

// shownTemplate is templateName the other way round.
func (s *Server) shownTemplate(name string) string {
	if name == s.cfg.Template || name == "default" && s.cfg.Template == "" {
		return baseTemplate
	}
	return name
}

// startedSandbox is what the clients need to know of a sandbox to use it.
type startedSandbox struct {
	TemplateID   string  `json:"templateID"`
	Alias        string  `json:"alias,omitempty"`
	SandboxID    string  `json:"sandboxID"`
	ClientID     string  `json:"clientID"`
	EnvdVersion  string  `json:"envdVersion"`
	EnvdToken    string  `json:"envdAccessToken"`
	TrafficToken *string `json:"trafficAccessToken"`
	Domain       *string `json:"domain"`
	// Isolation is ours; the clients pass over it.
	Isolation sandbox.Isolation `json:"isolation,omitempty"`
}

func (s *Server) started(sb sandbox.Sandbox) startedSandbox {
	name := s.shownTemplate(sb.Template)
	out := startedSandbox{
		TemplateID: name, Alias: name, SandboxID: sb.ID.Alphanumeric(), ClientID: clientID,
		EnvdVersion: envdVersion, EnvdToken: s.envdToken(sb.ID), Domain: s.domain(),
		Isolation: sb.Isolation,
	}
	if sb.PrivatePorts {
		token := s.trafficToken(sb.ID)
		out.TrafficToken = &token
	}
	return out
}

func (s *Server) domain() *string {
	if s.cfg.Domain == "" {
		return nil
	}
	return &s.cfg.Domain
}

// The states that the clients know. Others are those of sandboxes that are not there yet, or
// not any more.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

func stateOf(sb sandbox.Sandbox) string {
	switch sb.State {
	case sandbox.Running, sandbox.Waking:
		return stateRunning
	case sandbox.Hibernating, sandbox.Hibernated:
		return statePaused
	}
	return ""
}

// find returns the sandbox that a path names, and that the clients can know.
func (s *Server) find(r *http.Request) (sandbox.Sandbox, error) {
	shown := r.PathValue("id")
	id, err := parseID(shown)
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.control.Get(r.Context(), httpapi.Project(r), id)
	}
	if err == nil && stateOf(sb) == "" || sandbox.KindOf(err) == sandbox.NotFound {
		err = notFound(shown)
	}
	return sb, err
}

func notFound(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "sandbox_not_found", "sandbox %s not found", short(id))
}

// gone says "not found" of a sandbox that ended between two looks.
func gone(id string, err error) error {
	if sandbox.KindOf(err) == sandbox.NotFound || isCode(err, "sandbox_failed") {
		return notFound(id)
	}
	return err
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	sb, err := s.find(r)
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	s.write(w, http.StatusOK, s.detail(sb))
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) {
	id, err := parseID(r.PathValue("id"))
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.control.Get(r.Context(), httpapi.Project(r), id)
	}
	if err == nil && (sb.State == sandbox.Stopping || sb.State == sandbox.Stopped) {
		err = notFound(r.PathValue("id"))
	}
	if err == nil {
		err = s.control.Delete(r.Context(), httpapi.Project(r), id)
	}
	s.done(w, r, gone(r.PathValue("id"), err))
}

// connect gives a sandbox more time, and wakes it when it is paused.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Timeout *int64 `json:"timeout"`
		Memory  *bool  `json:"memory"` // false: boot it from its disk
	}
	err := read(w, r, &body)
	var after time.Duration
	if err == nil {
		after, err = seconds("timeout", body.Timeout, timeoutV2)
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	status, update := http.StatusOK, control.UpdateRequest{EndAfter: &after, OnlyLater: true}
	if sb.State != sandbox.Running {
		status, update.OnlyLater = http.StatusCreated, false
		_, _, err = s.control.WakeAs(r.Context(), sb.Project, sb.ID, control.WakeRequest{Cold: body.Memory != nil && !*body.Memory})
	}
	if err == nil {
		// It runs: a client that leaves now does not change what it has asked for.
		sb, err = s.control.Update(context.WithoutCancel(r.Context()), sb.Project, sb.ID, update)
	}
	if err != nil {
		s.front.Fail(w, r, gone(r.PathValue("id"), err))
		return
	}
	s.write(w, status, s.started(sb))
}

// resume is connect as older clients call it.
func (s *Server) resume(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Timeout   *int64 `json:"timeout"`
		AutoPause *bool  `json:"autoPause"`
	}
	err := read(w, r, &body)
	update := control.UpdateRequest{}
	if err == nil {
		var after time.Duration
		after, err = seconds("timeout", body.Timeout, timeoutV1)
		update.EndAfter = &after
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	if err == nil && sb.State == sandbox.Running {
		err = sandbox.Errorf(sandbox.Conflict, "already_running", "sandbox %s is running already", short(r.PathValue("id")))
	}
	if err == nil {
		_, _, err = s.control.Wake(r.Context(), sb.Project, sb.ID)
	}
	if err == nil {
		if body.AutoPause != nil {
			then := sandbox.AtEndDelete
			if *body.AutoPause {
				then = sandbox.AtEndHibernate
			}
			update.AtEnd = &then
		}
		sb, err = s.control.Update(context.WithoutCancel(r.Context()), sb.Project, sb.ID, update)
	}
	if err != nil {
		s.front.Fail(w, r, gone(r.PathValue("id"), err))
		return
	}
	s.write(w, http.StatusCreated, s.started(sb))
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Memory *bool `json:"memory"`
	}
	err := read(w, r, &body)
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	if err == nil {
		_, _, err = s.control.HibernateAs(r.Context(), sb.Project, sb.ID, control.HibernateRequest{
			DiskOnly: body.Memory != nil && !*body.Memory, Strict: true,
		})
		err = gone(r.PathValue("id"), err)
	}
	if sandbox.KindOf(err) == sandbox.Conflict && !isCode(err, "already_hibernated") {
		// The clients take any conflict for "it is paused already".
		err = &sandbox.Error{Kind: sandbox.Unavailable, Code: "sandbox_busy", Message: "the sandbox could not be paused now; try again", Err: err}
	}
	s.done(w, r, err)
}

// setTimeout moves the deadline, in either direction. 0 is now.
func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	err := read(w, r, &body)
	if err == nil && body.Timeout == nil {
		err = sandbox.Errorf(sandbox.Invalid, "missing_timeout", "timeout is missing; it is in seconds")
	}
	after := time.Millisecond
	if err == nil && *body.Timeout != 0 {
		after, err = seconds("timeout", body.Timeout, 0)
	}
	s.moveDeadline(w, r, control.UpdateRequest{EndAfter: &after}, err)
}

// refresh keeps a sandbox for at least a while.
func (s *Server) refresh(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Duration *int64 `json:"duration"`
	}
	err := read(w, r, &body)
	var after time.Duration
	if err == nil {
		after, err = seconds("duration", body.Duration, timeoutV1)
	}
	s.moveDeadline(w, r, control.UpdateRequest{EndAfter: &after, OnlyLater: true}, err)
}

func (s *Server) moveDeadline(w http.ResponseWriter, r *http.Request, u control.UpdateRequest, err error) {
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	if err == nil && stateOf(sb) == statePaused {
		err = sandbox.Errorf(sandbox.NotFound, "sandbox_paused", "sandbox %s is paused and has no timeout; connect to it", short(r.PathValue("id")))
	}
	if err == nil {
		_, err = s.control.Update(r.Context(), sb.Project, sb.ID, u)
		err = gone(r.PathValue("id"), err)
	}
	s.done(w, r, err)
}

package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// listedSandbox is a sandbox in a list.
type listedSandbox struct {
	TemplateID   string            `json:"templateID"`
	Alias        string            `json:"alias,omitempty"`
	SandboxID    string            `json:"sandboxID"`
	ClientID     string            `json:"clientID"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int               `json:"memoryMB"`
	DiskSizeMB   int               `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata"`
	State        string            `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	VolumeMounts []struct{}        `json:"volumeMounts"`
	Isolation    sandbox.Isolation `json:"isolation,omitempty"` // ours; the clients pass over it
}

// noEnd is when a sandbox ends that has no deadline: the clients expect one. It fits into what
// each of their languages has for times.
var noEnd = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *Server) listed(sb sandbox.Sandbox) listedSandbox {
	name := s.shownTemplate(sb.Template)
	out := listedSandbox{
		TemplateID: name, Alias: name, SandboxID: sb.ID.Alphanumeric(), ClientID: clientID,
		StartedAt: sb.CreatedAt.UTC(), EndAt: noEnd,
		CPUCount: sb.Shape.VCPUs, MemoryMB: sb.Shape.MemoryMB, DiskSizeMB: sb.Shape.DiskMB,
		Metadata: sb.Metadata, State: stateOf(sb), EnvdVersion: envdVersion, VolumeMounts: []struct{}{},
		Isolation: sb.Isolation,
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	switch {
	case out.State == statePaused:
		out.EndAt = sb.UpdatedAt.UTC()
	case !sb.EndsAt.IsZero():
		out.EndAt = sb.EndsAt.UTC()
	}
	return out
}

// detailedSandbox is a sandbox by itself.
type detailedSandbox struct {
	listedSandbox
	EnvdToken     string         `json:"envdAccessToken"`
	Domain        *string        `json:"domain"`
	AllowInternet *bool          `json:"allowInternetAccess"`
	Network       shownNetwork   `json:"network"`
	Lifecycle     shownLifecycle `json:"lifecycle"`
}

type shownLifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"`
}

func (s *Server) detail(sb sandbox.Sandbox) detailedSandbox {
	out := detailedSandbox{
		listedSandbox: s.listed(sb), EnvdToken: s.envdToken(sb.ID), Domain: s.domain(),
		Network: networkOf(sb), Lifecycle: shownLifecycle{AutoResume: !sb.Deadline.ManualWake, OnTimeout: "kill"},
	}
	if !sb.Egress {
		out.AllowInternet = new(bool)
	}
	if t := sb.Deadline.Then; t == sandbox.AtEndHibernate || t == sandbox.AtEndHibernateDisk {
		out.Lifecycle.OnTimeout = "pause"
	}
	return out
}

// listV1 lists what runs, without pages.
func (s *Server) listV1(w http.ResponseWriter, r *http.Request) {
	q := query{states: []string{stateRunning}}
	var err error
	if q.metadata, err = metadataQuery(r.URL.Query().Get("metadata")); err != nil {
		s.front.Fail(w, r, err)
		return
	}
	list, err := s.collect(r.Context(), httpapi.Project(r), q)
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	s.writeList(w, list)
}

func (s *Server) writeList(w http.ResponseWriter, list []sandbox.Sandbox) {
	out := make([]listedSandbox, 0, len(list))
	for _, sb := range list {
		out = append(out, s.listed(sb))
	}
	s.write(w, http.StatusOK, out)
}

// listV2 lists a page of what runs and what is paused.
func (s *Server) listV2(w http.ResponseWriter, r *http.Request) {
	q, err := s.parseQuery(r.URL.Query())
	var list []sandbox.Sandbox
	if err == nil {
		list, err = s.collect(r.Context(), httpapi.Project(r), q)
	}
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	running := 0
	for _, sb := range list {
		if stateOf(sb) == stateRunning {
			running++
		}
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	if q.after != nil {
		list = slices.DeleteFunc(list, func(sb sandbox.Sandbox) bool {
			return q.order(positionOf(sb), *q.after) <= 0
		})
	}
	if len(list) > q.limit {
		list = list[:q.limit]
		w.Header().Set("X-Next-Token", token(positionOf(list[q.limit-1])))
	}
	s.writeList(w, list)
}

// query selects sandboxes.
type query struct {
	states       []string // none: all
	template     string   // "": all
	metadata     map[string]string
	startedAfter time.Time // zero: all
	oldestFirst  bool
	limit        int
	after        *control.Position
}

func positionOf(sb sandbox.Sandbox) control.Position {
	return control.Position{CreatedAt: sb.CreatedAt, ID: sb.ID}
}

// order compares places in the list that the query asks for.
func (q query) order(a, b control.Position) int {
	c := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(string(a.ID), string(b.ID)))
	if q.oldestFirst {
		return c
	}
	return -c
}

// collect returns all sandboxes of a project that a query selects, on whichever page they are.
func (s *Server) collect(ctx context.Context, project string, q query) ([]sandbox.Sandbox, error) {
	o := control.ListOptions{Limit: 1000, Template: q.template, Metadata: q.metadata}
	var all []sandbox.Sandbox
	for {
		page, more, err := s.control.List(ctx, project, o)
		if err != nil {
			return nil, err
		}
		for _, sb := range page {
			state := stateOf(sb)
			if state == "" || len(q.states) > 0 && !slices.Contains(q.states, state) || sb.CreatedAt.Before(q.startedAfter) {
				continue
			}
			all = append(all, sb)
		}
		if !more {
			break
		}
		last := positionOf(page[len(page)-1])
		o.After = &last
	}
	slices.SortFunc(all, func(a, b sandbox.Sandbox) int { return q.order(positionOf(a), positionOf(b)) })
	return all, nil
}

func (s *Server) parseQuery(v url.Values) (query, error) {
	q := query{}
	var err error
	if q.limit, err = pageLimit(v.Get("limit")); err != nil {
		return q, err
	}
	if q.after, err = parseToken(v.Get("nextToken")); err != nil {
		return q, err
	}
	if q.metadata, err = metadataQuery(v.Get("metadata")); err != nil {
		return q, err
	}
	for _, list := range v["state"] {
		for _, state := range strings.Split(list, ",") {
			if state != stateRunning && state != statePaused {
				return q, sandbox.Errorf(sandbox.Invalid, "invalid_state", "state %s does not exist; use %s or %s", short(state), stateRunning, statePaused)
			}
			q.states = append(q.states, state)
		}
	}
	if t := v.Get("template"); t != "" {
		if q.template = s.templateName(t); q.template == "" {
			q.template = "default"
		}
	}
	switch v.Get("order") {
	case "", "desc":
	case "asc":
		q.oldestFirst = true
	default:
		return q, sandbox.Errorf(sandbox.Invalid, "invalid_order", "order %s does not exist; use asc or desc", short(v.Get("order")))
	}
	if t := v.Get("startedAfter"); t != "" {
		if q.startedAfter, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return q, sandbox.Errorf(sandbox.Invalid, "invalid_time", "startedAfter is not a time such as 2026-01-02T15:04:05Z")
		}
	}
	return q, nil
}

// metadataQuery reads a filter, which is a query of its own whose names and values are
// escaped once more.
func metadataQuery(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	bad := sandbox.Errorf(sandbox.Invalid, "invalid_metadata", "metadata is not a list of name=value")
	inner, err := url.QueryUnescape(s)
	if err != nil {
		return nil, bad
	}
	v, err := url.ParseQuery(inner)
	if err != nil {
		return nil, bad
	}
	out := make(map[string]string, len(v))
	for k := range v {
		out[k] = v.Get(k)
	}
	return out, nil
}

func pageLimit(s string) (int, error) {
	if s == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, sandbox.Errorf(sandbox.Invalid, "invalid_limit", "limit is %s; it can be 1 to 100", short(s))
	}
	return min(n, 100), nil
}

// token names a place in a list.
func token(p control.Position) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", p.CreatedAt.UnixMicro(), string(p.ID)))
}

func parseToken(s string) (*control.Position, error) {
	if s == "" {
		return nil, nil
	}
	bad := sandbox.Errorf(sandbox.Invalid, "invalid_token", "nextToken is not one that a list has returned")
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, bad
	}
	at, id, ok := strings.Cut(string(b), ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || micros < 0 || micros > 1<<60 {
		return nil, bad
	}
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		return nil, bad
	}
	return &control.Position{CreatedAt: time.UnixMicro(micros).UTC(), ID: parsed}, nil
}

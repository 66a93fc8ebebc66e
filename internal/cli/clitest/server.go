// Package clitest is a server without machines for the tests of the command
// line. It has the shapes of the real API, routes and all, from the same
// specification; what "runs" in its sandboxes is a small language of its own
// (runs.go). Start reading at New.
package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// Key is the one API key that a server accepts at first.
const Key = "rmt_test_key"

// Server is the fake. Make one with New.
type Server struct {
	dir     string // holds the files of every sandbox
	version string
	pid     int

	driver, isolation string

	mu        sync.Mutex
	sandboxes map[string]*box
	order     []string // ids, newest first
	templates map[string]v1.Template
	building  []v1.TemplateState
	keys      map[string]v1.KeyCreated
	projects  map[string]v1.Project
	runs      map[string]*run
	made      int
	begun     int // runs
	saved     int // checkpoints and Spaces

	checkpoints []*v1.Checkpoint // newest first
	spaces      []*v1.Space      // newest first
}

// box is a sandbox.
type box struct {
	v1.Sandbox
	dir string // its root directory
	env map[string]string

	contexts []v1.Context
}

// New returns a server that keeps the files of its sandboxes in dir.
func New(dir string) *Server {
	built := time.Now().Add(-time.Hour)
	step, fraction, ruin := "install Debian packages", 0.42, "the disk is full"
	return &Server{
		dir: dir, version: "1.2.3-test", pid: os.Getpid(), driver: "qemu", isolation: "emulated",
		sandboxes: map[string]*box{}, runs: map[string]*run{}, keys: map[string]v1.KeyCreated{},
		projects:  map[string]v1.Project{"default": {Name: "default", Sandboxes: 1, MemoryMb: 1024, DiskMb: 4096, CreatedAt: built}},
		templates: map[string]v1.Template{"default": {Name: "default", Hash: strings.Repeat("ab", 32), SizeBytes: 700 << 20, BuiltAt: built, Goldens: []int{2}, Aliases: &[]string{"base"}}},
		building:  []v1.TemplateState{{Name: "science", State: "building", Step: &step, Fraction: &fraction}, {Name: "ruin", State: "failed", Error: &ruin}},
	}
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	api := v1.HandlerWithOptions(s, v1.StdHTTPServerOptions{
		ErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) { fail(w, 400, "invalid_request", err.Error()) },
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "req_test")
		if r.URL.Path != "/v1/healthz" && !s.allowed(r.Header.Get("Authorization")) {
			fail(w, 401, "invalid_key", "invalid api key")
			return
		}
		api.ServeHTTP(w, r)
	})
}

func (s *Server) allowed(header string) bool {
	key, found := strings.CutPrefix(header, "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if found && k.Key == key {
			return true
		}
	}
	return found && key == Key
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v1.Error{Code: code, Error: message, RequestId: "req_test"})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encode(w, v)
}

func encode(w http.ResponseWriter, v any) { json.NewEncoder(w).Encode(v) }

func read[T any](w http.ResponseWriter, r *http.Request) (T, bool) {
	var v T
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		fail(w, 400, "invalid_body", "the body is not what this call takes: "+err.Error())
		return v, false
	}
	return v, true
}

// OnGVisor makes it claim that its machines are gVisor's. It is called before the first call.
func (s *Server) OnGVisor() *Server {
	s.driver, s.isolation = "gvisor", "gvisor"
	return s
}

// GetHealth implements the API.
func (s *Server) GetHealth(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

// GetInfo implements the API.
func (s *Server) GetInfo(w http.ResponseWriter, _ *http.Request) {
	answer(w, v1.Info{
		Auth: true, Driver: s.driver, Isolation: s.isolation, Node: "testnode", Region: "local",
		Pid: s.pid, StartedAt: time.Now().Add(-90 * time.Second), UptimeS: 90, Version: s.version,
	})
}

// GetCapacity implements the API. The pool is of larger machines than those of a
// create without wishes, which are all booted.
func (s *Server) GetCapacity(w http.ResponseWriter, _ *http.Request) {
	all := v1.PoolCounters{Size: 8, Ready: 7, Warming: 1, Hits: 30, Misses: 10, HitRate: 0.75, OnDemandBootMsMean: 312.4, RefillMsMean: 401, RefillMsLast: 390}
	answer(w, v1.Capacity{Machines: 2, Pool: all, Pools: []v1.Pool{{
		Template: "default", Vcpus: 4, MemoryMb: 1024, DiskMb: 4096, Size: all.Size, Ready: all.Ready, Warming: all.Warming,
		Hits: all.Hits, Misses: all.Misses, HitRate: all.HitRate, OnDemandBootMsMean: all.OnDemandBootMsMean,
		RefillMsMean: all.RefillMsMean, RefillMsLast: all.RefillMsLast,
	}}})
}

// CreateSandbox implements the API.
func (s *Server) CreateSandbox(w http.ResponseWriter, r *http.Request, _ v1.CreateSandboxParams) {
	req, ok := read[v1.SandboxCreate](w, r)
	if !ok {
		return
	}
	template := valueOr(req.Template, "default")
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.templates[template]; !found {
		fail(w, 404, "template_not_found", "there is no template "+template)
		return
	}
	memory := valueOr(req.MemoryMb, sandbox.DefaultMemoryMB)
	if memory < sandbox.MinMemoryMB {
		fail(w, 400, "invalid_memory", "memory_mb must be 512 to 16384")
		return
	}
	if i := valueOr(req.Isolation, "emulated"); i != "emulated" {
		fail(w, 400, "isolation_unavailable", "the isolation of this server's sandboxes is emulated, not "+i)
		return
	}
	like := v1.Sandbox{
		Template: template, TemplateHash: s.templates[template].Hash,
		MemoryMb: memory, Vcpus: valueOr(req.Vcpus, 2), DiskMb: valueOr(req.DiskMb, 4096), Egress: valueOr(req.Egress, true),
		EgressPolicy: policyOf(valueOr(req.EgressPolicy, v1.EgressPolicy{})),
		Metadata:     valueOr(req.Metadata, map[string]string{}), Isolation: "emulated", Region: "local", Node: "testnode",
		IdleTimeoutS: valueOr(req.IdleTimeoutS, 300), MaxLifetimeS: valueOr(req.MaxLifetimeS, 0),
		Persistent: valueOr(req.Persistent, false), OnIdle: "hibernate", Origin: "create",
	}
	if like.Persistent {
		like.OnIdle = "space"
	}
	setDeadline(&like, req.EndsInS, req.AtEnd)
	if req.Checkpoint != nil {
		i := slices.IndexFunc(s.checkpoints, func(c *v1.Checkpoint) bool { return c.Id == *req.Checkpoint })
		if i < 0 {
			fail(w, 404, "checkpoint_not_found", "checkpoint not found")
			return
		}
		like.Origin, like.Parent, like.Checkpoint = "checkpoint", &s.checkpoints[i].Sandbox, req.Checkpoint
	}
	b, err := s.newBoxLocked(like, valueOr(req.Env, nil))
	if err != nil {
		fail(w, 500, "internal", err.Error())
		return
	}
	out := b.Sandbox
	out.TimingsMs = &map[string]float64{"restore": 40.5, "identity": 2.5, "total": 43}
	answer(w, out)
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// ListSandboxes implements the API. A page holds two, so that clients must page.
func (s *Server) ListSandboxes(w http.ResponseWriter, _ *http.Request, params v1.ListSandboxesParams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []v1.Sandbox{}
	for _, id := range s.order {
		b := s.sandboxes[id]
		status := valueOr(params.Status, "")
		if status == "" && b.Status == "stopped" || status != "" && status != "any" && status != b.Status {
			continue
		}
		matches := valueOr(params.Template, b.Template) == b.Template
		for _, kv := range valueOr(params.Metadata, nil) {
			k, v, _ := strings.Cut(kv, "=")
			matches = matches && b.Metadata[k] == v
		}
		if matches {
			list = append(list, b.Sandbox)
		}
	}
	start := 0
	if params.Cursor != nil {
		fmt.Sscanf(*params.Cursor, "at%d", &start)
	}
	page := v1.SandboxList{Sandboxes: list[min(start, len(list)):]}
	if len(page.Sandboxes) > 2 {
		page.Sandboxes = page.Sandboxes[:2]
		next := fmt.Sprintf("at%d", start+2)
		page.NextCursor = &next
	}
	answer(w, page)
}

// find returns a sandbox, or answers 404.
func (s *Server) find(w http.ResponseWriter, id string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.sandboxes[id]
	if b == nil {
		fail(w, 404, "sandbox_not_found", "sandbox not found")
	}
	return b
}

// live is find for calls that need a running sandbox; they wake a hibernated one.
func (s *Server) live(w http.ResponseWriter, r *http.Request, id string) *box {
	b := s.find(w, id)
	if b == nil {
		return nil
	}
	s.mu.Lock()
	if b.Status == "hibernated" && r.Header.Get("X-Ramet-Wake") != "never" {
		b.wakeLocked()
	}
	status := b.Status
	s.mu.Unlock()
	if status == "hibernated" {
		fail(w, 409, "sandbox_hibernated", "the sandbox hibernates, and the call says not to wake it")
		return nil
	}
	if status != "running" {
		fail(w, 409, "sandbox_not_running", "the sandbox is "+status)
		return nil
	}
	return b
}

// GetSandbox implements the API.
func (s *Server) GetSandbox(w http.ResponseWriter, _ *http.Request, id v1.SandboxID) {
	if b := s.find(w, id); b != nil {
		answer(w, b.Sandbox)
	}
}

func setDeadline(sb *v1.Sandbox, after *int, then *string) {
	if then != nil {
		sb.AtEnd = then
	}
	if after == nil {
		return
	}
	if sb.EndsAt = nil; *after == 0 {
		sb.AtEnd = nil
		return
	}
	at := time.Now().Add(time.Duration(*after) * time.Second)
	sb.EndsAt = &at
	if sb.AtEnd == nil {
		what := "delete"
		sb.AtEnd = &what
	}
}

// UpdateSandbox implements the API.
func (s *Server) UpdateSandbox(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	req, ok := read[v1.SandboxUpdate](w, r)
	if !ok {
		return
	}
	b := s.find(w, id)
	if b == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.IdleTimeoutS, b.MaxLifetimeS = valueOr(req.IdleTimeoutS, b.IdleTimeoutS), valueOr(req.MaxLifetimeS, b.MaxLifetimeS)
	setDeadline(&b.Sandbox, req.EndsInS, req.AtEnd)
	for k, v := range valueOr(req.Metadata, nil) {
		if v == nil {
			delete(b.Metadata, k)
		} else {
			b.Metadata[k] = *v
		}
	}
	answer(w, b.Sandbox)
}

// StreamEvents implements the API: three events, then silence.
func (s *Server) StreamEvents(w http.ResponseWriter, r *http.Request, params v1.StreamEventsParams) {
	w.Header().Set("Content-Type", "text/event-stream")
	id := "sbx_" + strings.Repeat("1", 30) + "01"
	for i, typ := range []string{"creating", "running", "stopped"} {
		if fmt.Sprint(i+1) <= valueOr(params.Since, "0") {
			continue
		}
		b, _ := json.Marshal(v1.SandboxEvent{
			Id: int64(i + 1), Time: time.Now().UTC(), Sandbox: id, Type: typ, State: typ,
			Reason: "no call for 1m0s, its idle timeout", Cause: "idle_timeout", Data: map[string]string{},
		})
		fmt.Fprintf(w, ":\n\nid: %d\nevent: %s\ndata: %s\n\n", i+1, typ, b)
	}
	w.(http.Flusher).Flush()
	if valueOr(params.Follow, true) {
		<-r.Context().Done()
	}
}

// DeleteSandbox implements the API. The record of what was deleted stays.
func (s *Server) DeleteSandbox(w http.ResponseWriter, _ *http.Request, id v1.SandboxID) {
	b := s.find(w, id)
	if b == nil {
		return
	}
	s.mu.Lock()
	b.Status, b.State = "stopped", "stopped"
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// GetMetrics implements the API.
func (s *Server) GetMetrics(w http.ResponseWriter, r *http.Request, id v1.SandboxID) {
	if s.live(w, r, id) != nil {
		answer(w, v1.Metrics{
			MemoryTotalBytes: 1 << 30, MemoryAvailableBytes: 3 << 28, DiskTotalBytes: 4 << 30, DiskFreeBytes: 3 << 30,
			Load1: 0.25, Processes: 31, UptimeS: 61, Host: v1.HostMetrics{PssBytes: 60 << 20, OwnPages: 512, DiskBytes: 1 << 20},
		})
	}
}

// GetConsole implements the API. The text has what a terminal must not see.
func (s *Server) GetConsole(w http.ResponseWriter, _ *http.Request, id v1.SandboxID) {
	if s.find(w, id) != nil {
		fmt.Fprint(w, "[    0.000000] Linux version 6.1.0\n\x1b[31mred\x1b[0m\n")
	}
}

// ListTemplates implements the API.
func (s *Server) ListTemplates(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []v1.Template{}
	for _, t := range s.templates {
		list = append(list, t)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	answer(w, v1.TemplateList{Templates: list, Builds: s.building})
}

// BuildTemplate implements the API: "default" is built, "broken" fails, all others are unknown.
func (s *Server) BuildTemplate(w http.ResponseWriter, r *http.Request) {
	req, ok := read[v1.TemplateBuild](w, r)
	if !ok {
		return
	}
	if req.Name != "default" && req.Name != "broken" {
		fail(w, 404, "template_not_found", "there is no template "+req.Name)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	e := json.NewEncoder(w)
	step, detail, done := "build root filesystem", "Unpacking bash", true
	e.Encode(v1.BuildEvent{Type: "progress", Step: &step})
	fmt.Fprintln(w) // keep-alive
	e.Encode(v1.BuildEvent{Type: "progress", Step: &step, Detail: &detail})
	w.(http.Flusher).Flush()
	select { // long enough to be worth a line
	case <-time.After(1200 * time.Millisecond):
	case <-r.Context().Done():
		return
	}
	if req.Name == "broken" {
		message, code := "mmdebstrap ended with status 25", "build_failed"
		e.Encode(v1.BuildEvent{Type: "error", Error: &message, Code: &code})
		return
	}
	e.Encode(v1.BuildEvent{Type: "progress", Step: &step, Done: &done})
	s.mu.Lock()
	t := s.templates["default"]
	s.mu.Unlock()
	e.Encode(v1.BuildEvent{Type: "done", Template: &t})
}

// DeleteTemplate implements the API.
func (s *Server) DeleteTemplate(w http.ResponseWriter, _ *http.Request, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.templates[name]; !found {
		fail(w, 404, "template_not_found", "there is no template "+name)
		return
	}
	for _, b := range s.sandboxes {
		if b.Template == name && b.Status != "stopped" {
			fail(w, 409, "template_in_use", "sandboxes stand on the template "+name)
			return
		}
	}
	delete(s.templates, name)
	w.WriteHeader(http.StatusNoContent)
}

// ListKeys implements the API.
func (s *Server) ListKeys(w http.ResponseWriter, _ *http.Request, params v1.ListKeysParams) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []v1.Key{}
	for _, k := range s.keys {
		if k.Project != valueOr(params.Project, "default") {
			continue
		}
		list = append(list, v1.Key{Id: k.Id, Name: k.Name, Project: k.Project, Prefix: k.Prefix, CreatedAt: k.CreatedAt})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Id < list[j].Id })
	answer(w, v1.KeyList{Keys: list})
}

// CreateKey implements the API.
func (s *Server) CreateKey(w http.ResponseWriter, r *http.Request, _ v1.CreateKeyParams) {
	req, ok := read[v1.KeyCreate](w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.keys) + 1
	secret := fmt.Sprintf("rmt_secret_%d", n)
	switch valueOr(req.Format, "ramet") {
	case "ramet":
	case "e2b":
		secret = fmt.Sprintf("e2b_%064x", n)
	default:
		fail(w, 400, "invalid_format", "there is no such format; use ramet or e2b")
		return
	}
	k := v1.KeyCreated{
		Id: fmt.Sprintf("key_%016x", n), Name: valueOr(req.Name, ""), Key: secret,
		Project: valueOr(req.Project, "default"), Prefix: secret[:8], CreatedAt: time.Now().UTC(),
	}
	s.keys[k.Id] = k
	answer(w, k)
}

// DeleteKey implements the API.
func (s *Server) DeleteKey(w http.ResponseWriter, _ *http.Request, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.keys[id]; !found {
		fail(w, 404, "key_not_found", "there is no key "+id)
		return
	}
	delete(s.keys, id)
	w.WriteHeader(http.StatusNoContent)
}

// Backup is what the fake server's backups hold.
const Backup = "the records of a fake server"

// GetBackup implements the API.
func (s *Server) GetBackup(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/gzip")
	fmt.Fprint(w, Backup)
}

// GetServerMetrics implements the API.
func (s *Server) GetServerMetrics(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "ramet_info 1\n")
}

// GetUsage implements the API.
func (s *Server) GetUsage(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := v1.Usage{Sandboxes: []v1.SandboxUsage{}, Templates: []v1.TemplateUsage{}}
	for _, id := range s.order {
		if b := s.sandboxes[id]; b.Status == "running" {
			out.Sandboxes = append(out.Sandboxes, v1.SandboxUsage{
				Id: id, Template: b.Template, Status: b.Status, MemoryMb: b.MemoryMb, DiskMb: b.DiskMb,
				PssBytes: 60 << 20, OwnBytes: 2 << 20, DiskBytes: 1 << 20,
			})
		}
	}
	for _, t := range s.templates {
		out.Templates = append(out.Templates, v1.TemplateUsage{Name: t.Name, Hash: t.Hash, DiskBytes: t.SizeBytes, Sandboxes: len(out.Sandboxes)})
	}
	answer(w, out)
}

var errNoRun = errors.New("no such run")

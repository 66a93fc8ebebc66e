package httpapi

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// CreateSandbox creates a sandbox.
func (s *Server) CreateSandbox(w http.ResponseWriter, r *http.Request, _ rametv1.CreateSandboxParams) {
	s.once(w, r, s.createSandbox)
}

func (s *Server) createSandbox(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	var body rametv1.SandboxCreate
	if err := decode(w, r, maxBody, true, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	req, err := createRequest(body)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	req.Idempotency = idempotencyTag(r)
	sb, steps, err := s.control.Create(r.Context(), project(r), req)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeMachine(w, r, http.StatusOK, sb, s.timed(w, r, begin, steps))
}

// serverTiming tells the steps of a lifecycle call in the header that browsers and proxies know.
func serverTiming(w http.ResponseWriter, steps []sandbox.StepTime) {
	var header []string
	for _, step := range steps {
		header = append(header, step.Name+";dur="+strconv.FormatFloat(milliseconds(step.Took), 'f', -1, 64))
	}
	w.Header().Set("Server-Timing", strings.Join(header, ", "))
}

// createRequest merges our names of fields and Podflare's.
func createRequest(b rametv1.SandboxCreate) (control.CreateRequest, error) {
	req := control.CreateRequest{
		Template:   value(b.Template),
		NoEgress:   b.Egress != nil && !*b.Egress,
		Env:        value(b.Env),
		Metadata:   value(b.Metadata),
		Persistent: value(b.Persistent),
		Isolation:  sandbox.Isolation(value(b.Isolation)),
		KeepSeed:   b.Reseed != nil && !*b.Reseed,
		DeleteIdle: b.IdleTimeoutSeconds != nil, // the client that has this name expects it
	}
	if b.EgressPolicy != nil {
		policy := egressPolicy(*b.EgressPolicy)
		req.EgressPolicy = &policy
	}
	var err error
	if b.Checkpoint != nil {
		if req.Checkpoint, err = sandbox.ParsePublicSnapshotID(*b.Checkpoint, sandbox.UseCheckpoint); err != nil {
			return req, err
		}
	} else if req.KeepSeed {
		return req, badRequest("reseed_without_checkpoint", "reseed can only be false with checkpoint; leave it out")
	}
	memory, disk := b.MemoryMb, b.DiskMb
	if b.RamMib != nil {
		if memory != nil {
			return req, badRequest("two_names", "memory_mb and ram_mib are the same; give one of them")
		}
		// Podflare takes any number of MiB; we have steps.
		up := (*b.RamMib + sandbox.MemoryStepMB - 1) / sandbox.MemoryStepMB * sandbox.MemoryStepMB
		if *b.RamMib <= 0 || *b.RamMib > sandbox.MaxMemoryMB {
			return req, badRequest("invalid_memory", "ram_mib is %d; it can be %d to %d", *b.RamMib, sandbox.MinMemoryMB, sandbox.MaxMemoryMB)
		}
		memory = &up
	}
	if b.RootfsGb != nil {
		if disk != nil {
			return req, badRequest("two_names", "disk_mb and rootfs_gb are the same; give one of them")
		}
		if *b.RootfsGb <= 0 || *b.RootfsGb > sandbox.MaxDiskMB/1024 {
			return req, badRequest("invalid_disk", "rootfs_gb is %d; it can be %d to %d", *b.RootfsGb, sandbox.DefaultDiskMB/1024, sandbox.MaxDiskMB/1024)
		}
		mb := *b.RootfsGb * 1024
		disk = &mb
	}
	for _, size := range []struct {
		name string
		from *int
		to   *int
	}{{"memory_mb", memory, &req.Shape.MemoryMB}, {"disk_mb", disk, &req.Shape.DiskMB}, {"vcpus", b.Vcpus, &req.Shape.VCPUs}} {
		if size.from == nil {
			continue
		}
		if *size.from <= 0 {
			return req, badRequest("invalid_size", "%s is %d; it has to be more than 0", size.name, *size.from)
		}
		*size.to = *size.from
	}
	timers, err := timersOf(b.IdleTimeoutS, b.IdleTimeoutSeconds, b.MaxLifetimeS, b.TimeoutSeconds)
	req.IdleTimeout, req.MaxLifetime = orNever(timers.IdleTimeout), orNever(timers.MaxLifetime)
	if err == nil && (b.EndsInS != nil || b.AtEnd != nil) {
		req.Deadline = &sandbox.Deadline{Then: sandbox.AtEnd(value(b.AtEnd))}
		req.Deadline.After, err = seconds("ends_in_s", b.EndsInS, "", nil)
	}
	return req, err
}

// orNever is a time as a create has it: 0 is the default, when none was given.
func orNever(d *time.Duration) time.Duration {
	switch {
	case d == nil:
		return 0
	case *d == 0:
		return control.Never
	}
	return *d
}

// seconds reads a time under our name or Podflare's. Absent is 0.
func seconds(name string, value *int, other string, otherValue *int) (time.Duration, error) {
	if otherValue != nil {
		if value != nil {
			return 0, badRequest("two_names", "%s and %s are the same; give one of them", name, other)
		}
		name, value = other, otherValue
	}
	if value == nil {
		return 0, nil
	}
	if *value < 0 || *value > maxSeconds {
		return 0, badRequest("invalid_timeout", "%s is %d; it has to be 0 (never) to %d, and cannot be negative", name, *value, maxSeconds)
	}
	return time.Duration(*value) * time.Second, nil
}

// timersOf reads an idle timeout and a lifetime, each under our name and Podflare's.
func timersOf(idle, podflareIdle, lifetime, podflareLifetime *int) (control.UpdateRequest, error) {
	var req control.UpdateRequest
	for _, t := range []struct {
		name, other       string
		value, otherValue *int
		to                **time.Duration
	}{
		{"idle_timeout_s", "idle_timeout_seconds", idle, podflareIdle, &req.IdleTimeout},
		{"max_lifetime_s", "timeout_seconds", lifetime, podflareLifetime, &req.MaxLifetime},
	} {
		d, err := seconds(t.name, t.value, t.other, t.otherValue)
		if err != nil {
			return req, err
		}
		if t.value != nil || t.otherValue != nil {
			*t.to = &d
		}
	}
	return req, nil
}

// maxSeconds is a year.
const maxSeconds = 366 * 24 * 3600

// UpdateSandbox changes the settings of a sandbox.
func (s *Server) UpdateSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	begin := time.Now()
	var b rametv1.SandboxUpdate
	if err := decode(w, r, maxBody, false, &b); err != nil {
		s.writeError(w, r, err)
		return
	}
	req, err := timersOf(b.IdleTimeoutS, b.IdleTimeoutSeconds, b.MaxLifetimeS, b.TimeoutSeconds)
	req.Metadata = value(b.Metadata)
	if err == nil && b.EndsInS != nil {
		var after time.Duration
		after, err = seconds("ends_in_s", b.EndsInS, "", nil)
		req.EndAfter = &after
	}
	if b.AtEnd != nil {
		then := sandbox.AtEnd(*b.AtEnd)
		req.AtEnd = &then
	}
	parsed, perr := sandbox.ParseID(id)
	if err == nil {
		err = perr
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.control.Update(r.Context(), project(r), parsed, req)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	serverTiming(w, []sandbox.StepTime{{Name: "total", Took: time.Since(begin)}})
	s.writeSandbox(w, r, sb)
}

// ListSandboxes lists sandboxes.
func (s *Server) ListSandboxes(w http.ResponseWriter, r *http.Request, params rametv1.ListSandboxesParams) {
	o := control.ListOptions{State: value(params.Status), Template: value(params.Template)}
	var err error
	if o.Limit, err = pageLimit(params.Limit); err != nil {
		s.writeError(w, r, err)
		return
	}
	if o.After, err = parseCursor(value(params.Cursor)); err != nil {
		s.writeError(w, r, err)
		return
	}
	for _, m := range value(params.Metadata) {
		k, v, ok := strings.Cut(m, "=")
		if !ok || k == "" {
			s.writeError(w, r, badRequest("invalid_metadata", "metadata has to be key=value"))
			return
		}
		if o.Metadata == nil {
			o.Metadata = make(map[string]string)
		}
		if other, twice := o.Metadata[k]; twice && other != v {
			s.writeError(w, r, badRequest("invalid_metadata", "metadata %q is asked for with two values, and no sandbox has both", k))
			return
		}
		o.Metadata[k] = v
	}
	list, more, err := s.control.List(r.Context(), project(r), o)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.SandboxList{Sandboxes: make([]rametv1.Sandbox, 0, len(list))}
	for _, sb := range list {
		shown, err := s.describeSandbox(r, sb)
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		out.Sandboxes = append(out.Sandboxes, shown)
	}
	if more {
		last := list[len(list)-1]
		c := cursor(&control.Position{CreatedAt: last.CreatedAt, ID: last.ID})
		out.NextCursor = &c
	}
	s.writeJSON(w, r, out)
}

// pageLimit is how many entries a page of a list has.
func pageLimit(limit *int) (int, error) {
	if limit == nil {
		return 100, nil
	}
	if *limit < 1 || *limit > 1000 {
		return 0, badRequest("invalid_limit", "limit is %d; it can be 1 to 1000", *limit)
	}
	return *limit, nil
}

// cursor names a place in a list.
func cursor(p *control.Position) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", p.CreatedAt.UnixMicro(), string(p.ID)))
}

func parseCursor(s string) (*control.Position, error) {
	if s == "" {
		return nil, nil
	}
	bad := badRequest("invalid_cursor", "cursor is not one that a list has returned")
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, bad
	}
	at, id, ok := strings.Cut(string(b), ".")
	micros, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || micros < 0 || micros == math.MaxInt64 {
		return nil, bad
	}
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		return nil, bad
	}
	return &control.Position{CreatedAt: time.UnixMicro(micros), ID: parsed}, nil
}

// GetSandbox returns a sandbox.
func (s *Server) GetSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	sb, err := s.control.Get(r.Context(), project(r), parsed)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeSandbox(w, r, sb)
}

// DeleteSandbox deletes a sandbox.
func (s *Server) DeleteSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	begin := time.Now()
	parsed, err := sandbox.ParseID(id)
	var steps []sandbox.StepTime
	if err == nil {
		steps, err = s.control.DeleteSteps(r.Context(), project(r), parsed)
	}
	if err == nil {
		s.spanSteps(r.Context(), begin, steps)
		serverTiming(w, slices.Concat(steps, []sandbox.StepTime{{Name: "total", Took: time.Since(begin)}}))
	}
	s.writeDone(w, r, err)
}

// writeDone answers a call that has nothing to say but that it worked.
func (s *Server) writeDone(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// GetMetrics says what a sandbox uses.
func (s *Server) GetMetrics(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	g, host, err := s.control.Metrics(r.Context(), project(r), parsed)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, rametv1.Metrics{
		MemoryTotalBytes: int64(g.MemoryTotalBytes), MemoryAvailableBytes: int64(g.MemoryAvailableBytes),
		DiskTotalBytes: int64(g.DiskTotalBytes), DiskFreeBytes: int64(g.DiskFreeBytes),
		Load1: finite(g.Load1), UptimeS: finite(g.UptimeSeconds), CpuBusyMs: int64(g.CpuBusyMillis), Processes: int(g.Processes),
		Host: rametv1.HostMetrics{
			PssBytes: host.PSSBytes, OwnPages: host.OwnPages, DiskBytes: host.DiskBytes, CpuTimeMs: host.CPUTime.Milliseconds(),
		},
	})
}

// finite keeps what a guest may claim out of JSON, which has no NaN.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// GetConsole returns the last lines of the guest's console.
func (s *Server) GetConsole(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	text, err := s.control.Console(r.Context(), project(r), parsed)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff") // the guest wrote it
	_, _ = w.Write([]byte(strings.ToValidUTF8(text, "\uFFFD")))
}

// writeSandbox answers with a sandbox as its record tells it.
func (s *Server) writeSandbox(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox) {
	out, err := s.describeSandbox(r, sb)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, out)
}

// describeSandbox is toSandbox with when it ends, which other records say too.
func (s *Server) describeSandbox(r *http.Request, sb sandbox.Sandbox) (rametv1.Sandbox, error) {
	out := toSandbox(sb)
	if s.cfg.PublicURL != "" {
		out.Endpoint = &s.cfg.PublicURL
	}
	end, err := s.control.ExpiresAt(r.Context(), sb)
	out.ExpiresAt = moment(end)
	return out, err
}

// origins are the words for how a sandbox came to be.
var origins = map[sandbox.Origin]string{
	sandbox.OriginCreate: "create", sandbox.OriginFork: "fork", sandbox.OriginCheckpoint: "checkpoint", sandbox.OriginSpace: "space",
}

// onIdle is the word for what becomes of a sandbox when its idle timeout is over.
func onIdle(sb sandbox.Sandbox) string {
	switch {
	case sb.Persistent:
		return "space"
	case sb.DeleteIdle:
		return "delete"
	}
	return "hibernate"
}

func toSandbox(sb sandbox.Sandbox) rametv1.Sandbox {
	out := rametv1.Sandbox{
		Id: sb.ID.String(), State: string(sb.State), Status: string(sb.State),
		Template: sb.Template, TemplateHash: sb.TemplateHash,
		MemoryMb: sb.Shape.MemoryMB, Vcpus: sb.Shape.VCPUs, DiskMb: sb.Shape.DiskMB,
		Egress: sb.Egress, EgressPolicy: toEgressPolicy(sb.EgressPolicy), Metadata: notNil(sb.Metadata), Persistent: sb.Persistent, Origin: origins[sb.Origin],
		Isolation: string(sb.Isolation), Region: sb.Region, Node: sb.Node,
		IdleTimeoutS: int(sb.IdleTimeout.Seconds()), MaxLifetimeS: int(sb.MaxLifetime.Seconds()),
		CreatedAt: sb.CreatedAt.UTC(), UpdatedAt: sb.UpdatedAt.UTC(), OnIdle: onIdle(sb),
	}
	if sb.State == sandbox.Running {
		out.State = "ready" // Podflare's word
	}
	if sb.Parent != "" {
		parent := sb.Parent.String()
		out.Parent = &parent
	}
	if sb.MergedInto != "" {
		into := sb.MergedInto.String()
		out.MergedInto = &into
	}
	switch sb.Origin {
	case sandbox.OriginCheckpoint:
		id := sandbox.Snapshot{ID: sb.Snapshot, Use: sandbox.UseCheckpoint}.PublicID()
		out.Checkpoint = &id
	case sandbox.OriginSpace:
		id := sandbox.Snapshot{ID: sb.Snapshot, Use: sandbox.UseSpace}.PublicID()
		out.Space = &id
	}
	out.EndsAt = moment(sb.EndsAt)
	if sb.Deadline.After > 0 {
		then := string(cmp.Or(sb.Deadline.Then, sandbox.AtEndDelete))
		out.AtEnd = &then
	}
	if sb.BootNote != "" {
		out.BootNote = &sb.BootNote
	}
	if sb.FailReason != "" {
		out.FailReason = &sb.FailReason
	}
	if !sb.UnresponsiveSince.IsZero() {
		since := sb.UnresponsiveSince.UTC()
		out.UnresponsiveSince = &since
	}
	return out
}

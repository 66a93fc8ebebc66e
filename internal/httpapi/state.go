package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// maxForks bounds the children of one call.
const maxForks = 32

// wakeHeader is how a caller says that nothing shall wake for a call.
const wakeHeader = "X-Ramet-Wake"

// wakePolicy passes on what the caller says about waking.
func (s *Server) wakePolicy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(wakeHeader) {
		case "":
		case "never":
			r = r.WithContext(control.WithoutWake(r.Context()))
		default:
			hurryBody(r)
			s.writeError(w, r, badRequest("invalid_wake", "the header %s can only be never", wakeHeader))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// timed enters the steps of a call that began at begin in its span and in the header
// Server-Timing, and returns them in milliseconds with their total.
func (s *Server) timed(w http.ResponseWriter, r *http.Request, begin time.Time, steps []sandbox.StepTime) map[string]float64 {
	s.spanSteps(r.Context(), begin, steps)
	all := append(slices.Clip(steps), sandbox.StepTime{Name: "total", Took: time.Since(begin)})
	timings := make(map[string]float64, len(all))
	for _, step := range all {
		timings[step.Name] = milliseconds(step.Took)
	}
	serverTiming(w, all)
	return timings
}

// milliseconds has three digits behind the point at most.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// change is a call that changes the machine of a sandbox.
type change func(sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error)

// changeSandbox answers a call with the sandbox that it has changed.
func (s *Server) changeSandbox(w http.ResponseWriter, r *http.Request, id string, f change) {
	begin := time.Now()
	parsed, err := sandbox.ParseID(id)
	var sb sandbox.Sandbox
	var steps []sandbox.StepTime
	if err == nil {
		sb, steps, err = f(parsed)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeMachine(w, r, http.StatusOK, sb, s.timed(w, r, begin, steps))
}

// writeMachine answers with a sandbox whose machine was started, saved or replaced.
func (s *Server) writeMachine(w http.ResponseWriter, r *http.Request, status int, sb sandbox.Sandbox, timings map[string]float64) {
	out, err := s.describeSandbox(r, sb)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out.TimingsMs = &timings
	s.writeStatus(w, r, status, out)
}

// noBody refuses a body that says something where there is nothing to say.
func noBody(w http.ResponseWriter, r *http.Request) error {
	var none struct{}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	return decode(w, r, maxBody, true, &none)
}

// ForkSandbox forks a sandbox.
func (s *Server) ForkSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, _ rametv1.ForkSandboxParams) {
	s.once(w, r, func(w http.ResponseWriter, r *http.Request) { s.forkSandbox(w, r, id) })
}

func (s *Server) forkSandbox(w http.ResponseWriter, r *http.Request, id string) {
	begin := time.Now()
	var body rametv1.ForkRequest
	err := decode(w, r, maxBody, true, &body)
	req := control.ForkRequest{N: 1, KeepSeed: body.Reseed != nil && !*body.Reseed, Idempotency: idempotencyTag(r)}
	if body.N != nil {
		req.N = *body.N
	}
	if err == nil && (req.N < 1 || req.N > maxForks) {
		err = badRequest("invalid_n", "n is %d; it can be 1 to %d", req.N, maxForks)
	}
	var parsed sandbox.ID
	if err == nil {
		parsed, err = sandbox.ParseID(id)
	}
	var forked control.ForkResult
	if err == nil {
		forked, err = s.control.Fork(r.Context(), project(r), parsed, req)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.Forked{
		Children: make([]string, 0, len(forked.Children)), Sandboxes: make([]rametv1.Sandbox, 0, len(forked.Children)),
		PausedMs: milliseconds(forked.Info.Paused), DirtyBytes: forked.Info.DirtyBytes,
		TimingsMs: s.timed(w, r, begin, forked.Steps),
	}
	for _, sb := range forked.Children {
		child, err := s.describeSandbox(r, sb)
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		out.Children = append(out.Children, child.Id)
		out.Sandboxes = append(out.Sandboxes, child)
	}
	s.writeStatus(w, r, http.StatusCreated, out)
}

// MergeSandbox gives a sandbox the machine of another.
func (s *Server) MergeSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, winner string) {
	s.changeSandbox(w, r, id, func(parent sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
		if err := noBody(w, r); err != nil {
			return sandbox.Sandbox{}, nil, err
		}
		parsed, err := sandbox.ParseID(winner)
		if err != nil {
			return sandbox.Sandbox{}, nil, err
		}
		return s.control.Merge(r.Context(), project(r), parent, parsed)
	})
}

// HibernateSandbox hibernates a sandbox.
func (s *Server) HibernateSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	s.changeSandbox(w, r, id, func(id sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
		if err := noBody(w, r); err != nil {
			return sandbox.Sandbox{}, nil, err
		}
		return s.control.Hibernate(r.Context(), project(r), id)
	})
}

// WakeSandbox wakes a hibernated sandbox.
func (s *Server) WakeSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	s.changeSandbox(w, r, id, func(id sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
		if err := noBody(w, r); err != nil {
			return sandbox.Sandbox{}, nil, err
		}
		return s.control.Wake(r.Context(), project(r), id)
	})
}

// RestoreSandbox takes a sandbox back to a checkpoint.
func (s *Server) RestoreSandbox(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	s.changeSandbox(w, r, id, func(id sandbox.ID) (sandbox.Sandbox, []sandbox.StepTime, error) {
		var body rametv1.RestoreRequest
		if err := decode(w, r, maxBody, false, &body); err != nil {
			return sandbox.Sandbox{}, nil, err
		}
		if body.Checkpoint == "" {
			return sandbox.Sandbox{}, nil, badRequest("missing_checkpoint", "checkpoint is missing; give the id of one of the sandbox's checkpoints")
		}
		checkpoint, err := sandbox.ParsePublicSnapshotID(body.Checkpoint, sandbox.UseCheckpoint)
		if err != nil {
			return sandbox.Sandbox{}, nil, err
		}
		return s.control.Restore(r.Context(), project(r), id, checkpoint)
	})
}

// maxDiffPaths bounds the paths of one comparison.
const maxDiffPaths = 100

// DiffSandboxes says which files differ between two sandboxes.
func (s *Server) DiffSandboxes(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID) {
	var body rametv1.DiffRequest
	err := decode(w, r, maxBody, false, &body)
	if err == nil && body.Other == "" {
		err = badRequest("missing_other", "other is missing; give the id of the sandbox to compare with")
	}
	if err == nil && len(value(body.Paths)) > maxDiffPaths {
		err = badRequest("too_many_paths", "there are %d paths; there can be %d", len(*body.Paths), maxDiffPaths)
	}
	var a, b sandbox.ID
	if err == nil {
		a, err = sandbox.ParseID(id)
	}
	if err == nil {
		b, err = sandbox.ParseID(body.Other)
	}
	var d control.Diff
	if err == nil {
		d, err = s.control.Diff(r.Context(), project(r), a, b, value(body.Paths))
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, rametv1.Diff{
		Added: some(d.Added), Removed: some(d.Removed), Modified: some(d.Modified), Truncated: d.Truncated,
	})
}

// some is a list that is never null in JSON, of text that always is UTF-8: guests wrote it.
func some(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

// GetLineage says what comes of what.
func (s *Server) GetLineage(w http.ResponseWriter, r *http.Request, params rametv1.GetLineageParams) {
	var of sandbox.ID
	var err error
	if params.Sandbox != nil {
		of, err = sandbox.ParseID(*params.Sandbox)
	}
	var l control.Lineage
	if err == nil {
		l, err = s.control.Lineage(r.Context(), project(r), of)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.Lineage{Sandboxes: make([]rametv1.Sandbox, 0, len(l.Sandboxes)), Checkpoints: make([]rametv1.Checkpoint, 0, len(l.Checkpoints))}
	for _, sb := range l.Sandboxes {
		shown, err := s.describeSandbox(r, sb)
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		out.Sandboxes = append(out.Sandboxes, shown)
	}
	for _, snap := range l.Checkpoints {
		out.Checkpoints = append(out.Checkpoints, toCheckpoint(snap))
	}
	s.writeJSON(w, r, out)
}

// CollectGarbage removes what no record owns.
func (s *Server) CollectGarbage(w http.ResponseWriter, r *http.Request) {
	var body rametv1.GCRequest
	err := decode(w, r, maxBody, true, &body)
	if err == nil {
		err = s.control.MustBeAdmin(caller(r))
	}
	var report control.GCReport
	if err == nil {
		report, err = s.control.GC(r.Context(), value(body.DryRun))
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, rametv1.GCReport{
		DryRun: value(body.DryRun), Snapshots: toGarbage(report.Snapshots), Instances: toGarbage(report.Instances), Bytes: report.Bytes,
	})
}

func toGarbage(list []control.Garbage) []rametv1.Garbage {
	out := make([]rametv1.Garbage, 0, len(list))
	for _, g := range list {
		out = append(out, rametv1.Garbage{Id: g.ID, Bytes: g.Bytes, Why: g.Why})
	}
	return out
}

package e2b

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// A snapshot of E2B is a checkpoint of ours. The clients use its id where a template's can
// stand.

type shownSnapshot struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

// madeUp are the names of checkpoints that nobody has named.
var madeUp = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}-[0-9a-f]{6}$`)

func shownSnapshotOf(snap sandbox.Snapshot) shownSnapshot {
	out := shownSnapshot{SnapshotID: snap.PublicID(), Names: []string{}}
	if !madeUp.MatchString(snap.Name) {
		out.Names = append(out.Names, snap.Name)
	}
	return out
}

// snapshotID says whether what the clients call a template is the id of a snapshot.
func snapshotID(template string) (sandbox.SnapshotID, bool) {
	if !strings.HasPrefix(template, "ckp_") {
		return "", false
	}
	id, err := sandbox.ParsePublicSnapshotID(strings.TrimSuffix(template, ":default"), sandbox.UseCheckpoint)
	return id, err == nil
}

func (s *Server) createSnapshot(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name   string `json:"name"`
		Memory *bool  `json:"memory"`
	}
	err := read(w, r, &body)
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	var snap sandbox.Snapshot
	if err == nil {
		req := control.CheckpointRequest{Name: strings.TrimSuffix(body.Name, ":default")}
		if body.Memory != nil && !*body.Memory {
			req.Kind = sandbox.SnapshotDisk
		}
		snap, _, err = s.control.Checkpoint(control.WithoutWake(r.Context()), sb.Project, sb.ID, req)
		err = gone(r.PathValue("id"), err)
	}
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	s.write(w, http.StatusCreated, shownSnapshotOf(snap))
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) {
	v := r.URL.Query()
	q := control.SnapshotQuery{Use: sandbox.UseCheckpoint}
	var err error
	if q.Limit, err = pageLimit(v.Get("limit")); err == nil {
		q.After, err = parseToken(v.Get("nextToken"))
	}
	out := []shownSnapshot{}
	if id := v.Get("sandboxID"); id != "" && err == nil {
		if q.Sandbox, err = parseID(id); err != nil {
			s.write(w, http.StatusOK, out) // nobody's
			return
		}
	}
	var list []sandbox.Snapshot
	var more bool
	name := v.Get("name")
	if err == nil {
		list, more, err = s.control.Snapshots(r.Context(), httpapi.Project(r), q)
	}
	if err != nil {
		s.front.Fail(w, r, err)
		return
	}
	for _, snap := range list {
		if name == "" || snap.Name == name {
			out = append(out, shownSnapshotOf(snap))
		}
	}
	if more {
		w.Header().Set("X-Next-Token", token(*control.SnapshotPosition(list[len(list)-1])))
	}
	s.write(w, http.StatusOK, out)
}

// snapshotNamed returns the newest snapshot of a project with a name.
func (s *Server) snapshotNamed(ctx context.Context, project, name string) (sandbox.Snapshot, error) {
	name = strings.TrimSuffix(name, ":default")
	q := control.SnapshotQuery{Use: sandbox.UseCheckpoint, Limit: 1000}
	for {
		list, more, err := s.control.Snapshots(ctx, project, q)
		if err != nil {
			return sandbox.Snapshot{}, err
		}
		for _, snap := range list {
			if snap.Name == name {
				return snap, nil
			}
		}
		if !more {
			return sandbox.Snapshot{}, templateNotFound(name)
		}
		q.After = control.SnapshotPosition(list[len(list)-1])
	}
}

// deleteSnapshot is what a delete of a template is used for: templates themselves are the
// server's.
func (s *Server) deleteSnapshot(w http.ResponseWriter, r *http.Request) {
	name, project := r.PathValue("id"), httpapi.Project(r)
	id, ok := snapshotID(name)
	var err error
	if !ok {
		var snap sandbox.Snapshot
		snap, err = s.snapshotNamed(r.Context(), project, name)
		id = snap.ID
		if sandbox.KindOf(err) == sandbox.NotFound && s.hasTemplate(r.Context(), name) {
			err = notYet("deleting templates, which 'ramet template rm' does, is")
		}
	}
	if err == nil {
		err = s.control.DeleteSnapshot(r.Context(), project, id, sandbox.UseCheckpoint)
	}
	s.done(w, r, err)
}

func (s *Server) hasTemplate(ctx context.Context, name string) bool {
	name = s.templateName(name)
	if name == "" {
		return true // the server's own
	}
	list, err := s.control.Templates(ctx)
	if err != nil {
		return false
	}
	for _, t := range list {
		if t.Name == name {
			return true
		}
	}
	return false
}

func (s *Server) templateExists(w http.ResponseWriter, r *http.Request) {
	alias := r.PathValue("alias")
	if !s.hasTemplate(r.Context(), alias) {
		s.front.Fail(w, r, templateNotFound(alias))
		return
	}
	s.write(w, http.StatusOK, map[string]any{"templateID": s.shownTemplate(s.templateName(alias)), "public": true})
}

// maxForks is what the clients allow themselves.
const maxForks = 20

type forked struct {
	Sandbox *startedSandbox `json:"sandbox,omitempty"`
	Error   *apiError       `json:"error,omitempty"`
}

// fork makes all children or none. That there is no room for them is told of each, as the
// clients expect it; what is wrong with the parent or the request is the answer.
func (s *Server) fork(w http.ResponseWriter, r *http.Request) {
	body := struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}{}
	err := read(w, r, &body)
	req := control.ForkRequest{N: 1}
	if body.Count != nil {
		req.N = *body.Count
	}
	if err == nil && (req.N < 1 || req.N > maxForks) {
		err = sandbox.Errorf(sandbox.Invalid, "invalid_count", "count is %d; it can be 1 to %d", req.N, maxForks)
	}
	if err == nil {
		req.EndAfter, err = seconds("timeout", body.Timeout, timeoutV2)
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.find(r)
	}
	var made control.ForkResult
	if err == nil {
		made, err = s.control.Fork(control.WithoutWake(r.Context()), sb.Project, sb.ID, req)
		err = gone(r.PathValue("id"), err)
	}
	var out []forked
	kind := sandbox.KindOf(err)
	switch {
	case err != nil && r.Context().Err() == nil && (kind == sandbox.Exhausted || kind == sandbox.Unavailable):
		httpapi.NoteError(r, err)
		status, e := httpapi.Describe(r, err)
		for range req.N {
			out = append(out, forked{Error: &apiError{Code: status, Message: e.Error, ErrorCode: e.Code}})
		}
	case err != nil:
		s.front.Fail(w, r, err)
		return
	}
	for _, child := range made.Children {
		c := s.started(child)
		out = append(out, forked{Sandbox: &c})
	}
	s.write(w, http.StatusCreated, out)
}

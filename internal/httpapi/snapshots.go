package httpapi

import (
	"maps"
	"net/http"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// CreateCheckpoint makes a checkpoint.
func (s *Server) CreateCheckpoint(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, _ rametv1.CreateCheckpointParams) {
	s.once(w, r, func(w http.ResponseWriter, r *http.Request) { s.createCheckpoint(w, r, id) })
}

func (s *Server) createCheckpoint(w http.ResponseWriter, r *http.Request, id string) {
	begin := time.Now()
	var body rametv1.CheckpointCreate
	err := decode(w, r, maxBody, true, &body)
	req := control.CheckpointRequest{
		Name: value(body.Name), Kind: sandbox.SnapshotFull, DeleteOldest: value(body.DeleteOldest), Idempotency: idempotencyTag(r),
	}
	if body.Kind != nil {
		req.Kind = sandbox.SnapshotKind(*body.Kind)
	}
	if err == nil && req.Kind != sandbox.SnapshotFull && req.Kind != sandbox.SnapshotDisk {
		err = badRequest("invalid_kind", "kind is %q; it can be full or disk", short(string(req.Kind)))
	}
	var parsed sandbox.ID
	if err == nil {
		parsed, err = sandbox.ParseID(id)
	}
	var snap sandbox.Snapshot
	var info sandbox.SaveInfo
	if err == nil {
		snap, info, err = s.control.Checkpoint(r.Context(), project(r), parsed, req)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := toCheckpoint(snap)
	paused, timings := milliseconds(info.Paused), s.timed(w, r, begin, info.Steps)
	out.PausedMs, out.DirtyBytes, out.TimingsMs = &paused, &info.DirtyBytes, &timings
	s.writeStatus(w, r, http.StatusCreated, out)
}

// snapshotPage reads a page of snapshots; next is the cursor of the page after it.
func (s *Server) snapshotPage(r *http.Request, q control.SnapshotQuery, limit *int, after *string) (list []sandbox.Snapshot, next *string, err error) {
	if q.Limit, err = pageLimit(limit); err != nil {
		return nil, nil, err
	}
	if q.After, err = parseCursor(value(after)); err != nil {
		return nil, nil, err
	}
	list, more, err := s.control.Snapshots(r.Context(), project(r), q)
	if err != nil {
		return nil, nil, err
	}
	if more {
		last := list[len(list)-1]
		c := cursor(control.SnapshotPosition(last))
		next = &c
	}
	return list, next, nil
}

// ListCheckpoints lists the checkpoints of the project.
func (s *Server) ListCheckpoints(w http.ResponseWriter, r *http.Request, params rametv1.ListCheckpointsParams) {
	s.listCheckpoints(w, r, "", params.Limit, params.Cursor)
}

// ListSandboxCheckpoints lists those of a sandbox.
func (s *Server) ListSandboxCheckpoints(w http.ResponseWriter, r *http.Request, id rametv1.SandboxID, params rametv1.ListSandboxCheckpointsParams) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.listCheckpoints(w, r, parsed, params.Limit, params.Cursor)
}

func (s *Server) listCheckpoints(w http.ResponseWriter, r *http.Request, of sandbox.ID, limit *int, after *string) {
	list, next, err := s.snapshotPage(r, control.SnapshotQuery{Use: sandbox.UseCheckpoint, Sandbox: of}, limit, after)
	if err == nil && of != "" && len(list) == 0 {
		// Checkpoints outlive their sandbox and its record; without any it has to be there.
		_, err = s.control.Get(r.Context(), project(r), of)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.CheckpointList{Checkpoints: make([]rametv1.Checkpoint, 0, len(list)), NextCursor: next}
	for _, snap := range list {
		out.Checkpoints = append(out.Checkpoints, toCheckpoint(snap))
	}
	s.writeJSON(w, r, out)
}

// snapshot finds the snapshot that a path names.
func (s *Server) snapshot(r *http.Request, id string, use sandbox.SnapshotUse) (sandbox.Snapshot, error) {
	parsed, err := sandbox.ParsePublicSnapshotID(id, use)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	return s.control.Snapshot(r.Context(), project(r), parsed, use)
}

func (s *Server) deleteSnapshot(w http.ResponseWriter, r *http.Request, id string, use sandbox.SnapshotUse) {
	parsed, err := sandbox.ParsePublicSnapshotID(id, use)
	if err == nil {
		err = s.control.DeleteSnapshot(r.Context(), project(r), parsed, use)
	}
	s.writeDone(w, r, err)
}

// GetCheckpoint returns a checkpoint.
func (s *Server) GetCheckpoint(w http.ResponseWriter, r *http.Request, id rametv1.CheckpointID) {
	snap, err := s.snapshot(r, id, sandbox.UseCheckpoint)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, toCheckpoint(snap))
}

// DeleteCheckpoint deletes a checkpoint.
func (s *Server) DeleteCheckpoint(w http.ResponseWriter, r *http.Request, id rametv1.CheckpointID) {
	s.deleteSnapshot(w, r, id, sandbox.UseCheckpoint)
}

// ListSpaces lists Spaces.
func (s *Server) ListSpaces(w http.ResponseWriter, r *http.Request, params rametv1.ListSpacesParams) {
	list, next, err := s.snapshotPage(r, control.SnapshotQuery{Use: sandbox.UseSpace}, params.Limit, params.Cursor)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.SpaceList{Spaces: make([]rametv1.Space, 0, len(list)), NextCursor: next}
	for _, snap := range list {
		out.Spaces = append(out.Spaces, toSpace(snap))
	}
	s.writeJSON(w, r, out)
}

// GetSpace returns a Space.
func (s *Server) GetSpace(w http.ResponseWriter, r *http.Request, id rametv1.SpaceID) {
	snap, err := s.snapshot(r, id, sandbox.UseSpace)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, toSpace(snap))
}

// DeleteSpace deletes a Space.
func (s *Server) DeleteSpace(w http.ResponseWriter, r *http.Request, id rametv1.SpaceID) {
	s.deleteSnapshot(w, r, id, sandbox.UseSpace)
}

// ResumeSpace makes a sandbox of a Space.
func (s *Server) ResumeSpace(w http.ResponseWriter, r *http.Request, id rametv1.SpaceID, _ rametv1.ResumeSpaceParams) {
	s.once(w, r, func(w http.ResponseWriter, r *http.Request) { s.resumeSpace(w, r, id) })
}

func (s *Server) resumeSpace(w http.ResponseWriter, r *http.Request, id string) {
	begin := time.Now()
	var body rametv1.SpaceResume
	err := decode(w, r, maxBody, true, &body)
	var timers control.UpdateRequest
	if err == nil {
		timers, err = timersOf(body.IdleTimeoutS, body.IdleTimeoutSeconds, body.MaxLifetimeS, body.TimeoutSeconds)
	}
	var space sandbox.SnapshotID
	if err == nil {
		space, err = sandbox.ParsePublicSnapshotID(id, sandbox.UseSpace)
	}
	var sb sandbox.Sandbox
	var steps []sandbox.StepTime
	if err == nil {
		sb, steps, err = s.control.ResumeSpace(r.Context(), project(r), space, control.ResumeRequest{
			IdleTimeout: orNever(timers.IdleTimeout), MaxLifetime: orNever(timers.MaxLifetime),
			DeleteIdle: body.IdleTimeoutSeconds != nil, Persistent: body.Persistent, Egress: body.Egress,
		})
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeMachine(w, r, http.StatusCreated, sb, s.timed(w, r, begin, steps))
}

func toCheckpoint(s sandbox.Snapshot) rametv1.Checkpoint {
	return rametv1.Checkpoint{
		Id: s.PublicID(), Name: s.Name, Sandbox: s.Sandbox.String(), Kind: string(s.Kind), Status: string(s.State),
		Template: s.Template, TemplateHash: s.TemplateHash, MemoryMb: s.Shape.MemoryMB, Vcpus: s.Shape.VCPUs, DiskMb: s.Shape.DiskMB,
		Egress: s.Settings.Egress, Metadata: notNil(s.Settings.Metadata), Persistent: s.Settings.Persistent,
		IdleTimeoutS: int(s.Settings.IdleTimeout.Seconds()), MaxLifetimeS: int(s.Settings.MaxLifetime.Seconds()),
		Isolation: string(s.Isolation), Region: s.Region, Node: s.Node, SizeBytes: s.SizeBytes,
		CreatedAt: s.CreatedAt.UTC(), ExpiresAt: moment(s.ExpiresAt),
	}
}

func toSpace(s sandbox.Snapshot) rametv1.Space {
	return rametv1.Space{
		Id: s.PublicID(), Name: s.Name, Sandbox: s.Sandbox.String(), Status: string(s.State),
		Template: s.Template, TemplateHash: s.TemplateHash, MemoryMb: s.Shape.MemoryMB, Vcpus: s.Shape.VCPUs, DiskMb: s.Shape.DiskMB,
		Egress: s.Settings.Egress, Metadata: notNil(s.Settings.Metadata), Persistent: s.Settings.Persistent,
		IdleTimeoutS: int(s.Settings.IdleTimeout.Seconds()), MaxLifetimeS: int(s.Settings.MaxLifetime.Seconds()),
		Isolation: string(s.Isolation), Region: s.Region, Node: s.Node, SizeBytes: s.SizeBytes,
		CreatedAt: s.CreatedAt.UTC(), ExpiresAt: moment(s.ExpiresAt),
	}
}

// notNil is a map that is never null in JSON.
func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}

// moment is a time for JSON, absent when it is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

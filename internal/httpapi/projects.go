package httpapi

import (
	"net/http"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// ListProjects lists projects.
func (s *Server) ListProjects(w http.ResponseWriter, r *http.Request) {
	list, err := s.control.Projects(r.Context(), caller(r))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.ProjectList{Projects: make([]rametv1.Project, 0, len(list))}
	for _, p := range list {
		out.Projects = append(out.Projects, toProject(p))
	}
	s.writeJSON(w, r, out)
}

// GetProject returns a project.
func (s *Server) GetProject(w http.ResponseWriter, r *http.Request, name string) {
	p, err := s.control.Project(r.Context(), caller(r), name)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, toProject(p))
}

// SetProject makes a project or changes its quota.
func (s *Server) SetProject(w http.ResponseWriter, r *http.Request, name string) {
	var body rametv1.ProjectSet
	if err := decode(w, r, maxBody, true, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	fields := []struct {
		name  string
		value *int
		to    func(*sandbox.Quota) *int
	}{
		{"max_sandboxes", body.MaxSandboxes, func(q *sandbox.Quota) *int { return &q.Sandboxes }},
		{"max_memory_mb", body.MaxMemoryMb, func(q *sandbox.Quota) *int { return &q.MemoryMB }},
		{"max_disk_mb", body.MaxDiskMb, func(q *sandbox.Quota) *int { return &q.DiskMB }},
	}
	for _, f := range fields {
		if f.value != nil && (*f.value < -1 || *f.value > maxQuota) {
			s.writeError(w, r, badRequest("invalid_quota", "%s is %d; it can be 1 to %d, 0 for the server's default, or -1 for no limit", f.name, *f.value, maxQuota))
			return
		}
	}
	retention, err := retentionOf(body)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	p, err := s.control.SetQuota(r.Context(), caller(r), name, func(q *sandbox.Quota) {
		for _, f := range fields {
			if f.value != nil {
				*f.to(q) = *f.value
			}
		}
	})
	if err == nil && retention != nil {
		p, err = s.control.SetRetention(r.Context(), caller(r), name, retention)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.writeJSON(w, r, toProject(p))
}

// maxRetention is the longest retention, in seconds: ten years.
const maxRetention = 3660 * 24 * 3600

// retentionOf returns what to change of a retention, nil for nothing.
func retentionOf(body rametv1.ProjectSet) (func(*sandbox.Retention), error) {
	fields := []struct {
		name  string
		value *int64
		to    func(*sandbox.Retention) *time.Duration
	}{
		{"retain_hibernated_s", body.RetainHibernatedS, func(r *sandbox.Retention) *time.Duration { return &r.Hibernated }},
		{"retain_spaces_s", body.RetainSpacesS, func(r *sandbox.Retention) *time.Duration { return &r.Spaces }},
		{"retain_checkpoints_s", body.RetainCheckpointsS, func(r *sandbox.Retention) *time.Duration { return &r.Checkpoints }},
	}
	given := false
	for _, f := range fields {
		if f.value == nil {
			continue
		}
		given = true
		if *f.value < -1 || *f.value > maxRetention {
			return nil, badRequest("invalid_retention", "%s is %d; it can be 1 to %d, 0 for the server's default, or -1 for ever", f.name, *f.value, maxRetention)
		}
	}
	if !given {
		return nil, nil
	}
	return func(r *sandbox.Retention) {
		for _, f := range fields {
			if f.value != nil {
				*f.to(r) = time.Duration(*f.value) * time.Second
			}
		}
	}, nil
}

// maxQuota bounds a limit; sums of what it allows still fit.
const maxQuota = 1 << 40

func toProject(p control.Project) rametv1.Project {
	return rametv1.Project{
		Name: p.Name, MaxSandboxes: p.Limits.Sandboxes, MaxMemoryMb: p.Limits.MemoryMB, MaxDiskMb: p.Limits.DiskMB,
		Sandboxes: p.Usage.Sandboxes, MemoryMb: p.Usage.MemoryMB, DiskMb: p.Usage.DiskMB, CreatedAt: p.CreatedAt,
		RetainHibernatedS: int64(p.Kept.Hibernated / time.Second), RetainSpacesS: int64(p.Kept.Spaces / time.Second),
		RetainCheckpointsS: int64(p.Kept.Checkpoints / time.Second),
	}
}

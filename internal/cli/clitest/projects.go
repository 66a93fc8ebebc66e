package clitest

import (
	"net/http"
	"sort"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// ListProjects implements the API.
func (s *Server) ListProjects(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []v1.Project{}
	for _, p := range s.projects {
		list = append(list, p)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	answer(w, v1.ProjectList{Projects: list})
}

// GetProject implements the API.
func (s *Server) GetProject(w http.ResponseWriter, _ *http.Request, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, found := s.projects[name]
	if !found {
		fail(w, 404, "project_not_found", "project not found")
		return
	}
	answer(w, p)
}

// SetProject implements the API. The server's default is no limit.
func (s *Server) SetProject(w http.ResponseWriter, r *http.Request, name string) {
	req, ok := read[v1.ProjectSet](w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, found := s.projects[name]
	if !found {
		p = v1.Project{Name: name, CreatedAt: time.Now().UTC()}
	}
	p.MaxSandboxes = max(0, valueOr(req.MaxSandboxes, p.MaxSandboxes))
	p.MaxMemoryMb = max(0, valueOr(req.MaxMemoryMb, p.MaxMemoryMb))
	p.MaxDiskMb = max(0, valueOr(req.MaxDiskMb, p.MaxDiskMb))
	for _, f := range []struct {
		from *int64
		to   *int64
		def  int64
	}{
		{req.RetainHibernatedS, &p.RetainHibernatedS, 30 * 24 * 3600},
		{req.RetainSpacesS, &p.RetainSpacesS, 30 * 24 * 3600},
		{req.RetainCheckpointsS, &p.RetainCheckpointsS, 90 * 24 * 3600},
	} {
		switch {
		case f.from != nil && *f.from != 0:
			*f.to = max(0, *f.from)
		case f.from != nil || !found:
			*f.to = f.def
		}
	}
	s.projects[name] = p
	answer(w, p)
}

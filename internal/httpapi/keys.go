package httpapi

import (
	"net/http"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
)

// CreateKey makes a key and shows its secret.
func (s *Server) CreateKey(w http.ResponseWriter, r *http.Request, _ rametv1.CreateKeyParams) {
	s.once(w, r, s.createKey)
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) {
	var body rametv1.KeyCreate
	if err := decode(w, r, maxBody, true, &body); err != nil {
		s.writeError(w, r, err)
		return
	}
	owner := project(r)
	if body.Project != nil {
		owner = *body.Project
	}
	err := s.control.MayUse(caller(r), owner)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	k, secret, err := s.control.CreateKeyAs(r.Context(), owner, value(body.Name), control.KeyFormat(value(body.Format)))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	s.writeJSON(w, r, rametv1.KeyCreated{
		Id: k.ID, Name: k.Name, Project: k.Project, Prefix: k.Prefix, Admin: k.Admin, CreatedAt: k.CreatedAt, Key: secret,
	})
}

// ListKeys lists keys.
func (s *Server) ListKeys(w http.ResponseWriter, r *http.Request, params rametv1.ListKeysParams) {
	owner := project(r)
	if params.Project != nil {
		owner = *params.Project
	}
	if err := s.control.MayUse(caller(r), owner); err != nil {
		s.writeError(w, r, err)
		return
	}
	keys, err := s.control.Keys(r.Context(), owner)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	out := rametv1.KeyList{Keys: make([]rametv1.Key, 0, len(keys))}
	for _, k := range keys {
		out.Keys = append(out.Keys, rametv1.Key{
			Id: k.ID, Name: k.Name, Project: k.Project, Prefix: k.Prefix, Admin: k.Admin, CreatedAt: k.CreatedAt,
		})
	}
	s.writeJSON(w, r, out)
}

// DeleteKey revokes a key.
func (s *Server) DeleteKey(w http.ResponseWriter, r *http.Request, id string) {
	s.writeDone(w, r, s.control.DeleteKey(r.Context(), caller(r), id))
}

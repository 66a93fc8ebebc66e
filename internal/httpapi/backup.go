package httpapi

import (
	"net/http"
)

// GetBackup sends a backup.
func (s *Server) GetBackup(w http.ResponseWriter, r *http.Request) {
	out := &lateHeaders{w: w}
	err := s.control.Backup(r.Context(), caller(r), out)
	switch {
	case err == nil:
	case !out.begun:
		s.writeError(w, r, err)
	default:
		// A client must never take a part for the whole.
		requestOf(r.Context()).err = err
		panic(http.ErrAbortHandler)
	}
}

// lateHeaders sends the headers of a backup with its first bytes, so that what
// is wrong before them is an error with a status.
type lateHeaders struct {
	w     http.ResponseWriter
	begun bool
}

func (l *lateHeaders) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/gzip")
		l.w.Header().Set("Cache-Control", "no-store")
		l.w.WriteHeader(http.StatusOK)
	}
	return l.w.Write(b)
}

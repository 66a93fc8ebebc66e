package envd

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"

	"ramet.dev/ramet/internal/sandbox"
)

// checkUser says whether the user of a call exists, when the request has named one.
func (s *Server) checkUser(ctx context.Context, c *call) error {
	if !c.named || c.user == "root" || c.user == c.User {
		return nil
	}
	_, err := s.home(ctx, c)
	var own *httpError
	if errors.As(err, &own) {
		return err
	}
	return nil // whatever else is wrong, it is not who they are
}

// home returns the home of the user of a call.
func (s *Server) home(ctx context.Context, c *call) (string, error) {
	info, err := s.control.Stat(ctx, c.Project, c.ID, ".", c.user, true)
	switch {
	case sandbox.KindOf(err) == sandbox.Invalid && !denied(err):
		return "", &httpError{http.StatusUnauthorized, "invalid username: '" + shorten(c.user) + "'"}
	case err != nil:
		return "", err
	}
	return info.Path, nil
}

// denied says that the error is one of permissions.
func denied(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Code == "permission_denied"
}

// resolve makes a path absolute: relative ones, and those with a tilde, start at the
// user's home. It refuses users that do not exist.
func (s *Server) resolve(ctx context.Context, c *call, name string) (string, error) {
	if path.IsAbs(name) {
		if err := s.checkUser(ctx, c); err != nil {
			return "", err
		}
		return path.Clean(name), nil
	}
	home, err := s.home(ctx, c)
	if err != nil {
		return "", err
	}
	if name == "~" {
		return home, nil
	}
	name = strings.TrimPrefix(name, "~/")
	return path.Join(home, name), nil
}

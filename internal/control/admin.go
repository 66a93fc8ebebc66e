package control

import "ramet.dev/ramet/internal/sandbox"

// MustBeAdmin says why a caller may not do what only the server's own key may.
func (c *Control) MustBeAdmin(caller sandbox.Key) error {
	if caller.Admin {
		return nil
	}
	return errAdminOnly
}

package control

import (
	"context"
	"io"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Backup writes a backup of the records and the server's own key to w, for an admin.
func (c *Control) Backup(ctx context.Context, caller sandbox.Key, w io.Writer) error {
	if !caller.Admin {
		return errAdminOnly
	}
	if c.cfg.Files == (store.Files{}) {
		return sandbox.Errorf(sandbox.Unsupported, "no_backup", "this server has no data directory to back up")
	}
	if err := c.store.Backup(ctx, c.cfg.Files, w); err != nil {
		return err
	}
	c.log.Info("backup made", "key", caller.ID)
	return nil
}

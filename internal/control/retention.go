package control

import (
	"context"
	"errors"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// expireBatch is how many snapshots of a project and use one sweep lets go.
const expireBatch = 100

// endOld ends what is kept by itself and whose time is over: hibernated sandboxes by their
// lifetime, and those, Spaces and checkpoints by the retention of their project. The list is
// that of the sweep.
func (c *Control) endOld(ctx context.Context, list []sandbox.Sandbox) error {
	var errs []error
	for _, sb := range list {
		if sb.State == sandbox.Hibernated && sb.MaxLifetime > 0 && time.Since(sb.CreatedAt) > sb.MaxLifetime {
			_, err := c.end(ctx, sb.Project, sb.ID, ending{
				cause: causeLifetime, reason: "it is older than " + sb.MaxLifetime.String() + ", its maximum lifetime", only: sandbox.Hibernated,
			})
			errs = append(errs, err)
		}
	}
	old, err := c.store.ExpiredSnapshots(ctx, c.cfg.Node, c.cfg.Retention, expireBatch)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, snap := range old {
		why := ending{cause: causeRetention, reason: "it was kept since " + snap.CreatedAt.Format(time.RFC3339) + ", as long as its project keeps such"}
		if snap.Use == sandbox.UseHibernation {
			why.only = sandbox.Hibernated
			_, err = c.end(ctx, snap.Project, snap.Sandbox, why)
		} else {
			err = c.deleteSnapshot(ctx, snap, why)
		}
		if k := sandbox.KindOf(err); err != nil && k != sandbox.NotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

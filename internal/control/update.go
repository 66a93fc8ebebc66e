package control

import (
	"context"
	"maps"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// UpdateRequest says what to change of a sandbox. What is nil stays.
type UpdateRequest struct {
	// IdleTimeout and MaxLifetime: 0 for none. The lifetime counts from the create.
	IdleTimeout, MaxLifetime *time.Duration
	// Metadata is merged into what is there; nil values remove their keys.
	Metadata map[string]*string
}

// maxTimer bounds idle timeouts and lifetimes.
const maxTimer = 366 * 24 * time.Hour

func checkTimer(name string, d time.Duration) error {
	if d < 0 || d > maxTimer {
		return sandbox.Errorf(sandbox.Invalid, "invalid_timeout", "%s has to be 0 (none) to %d seconds", name, int(maxTimer.Seconds()))
	}
	return nil
}

// Update changes the settings of a sandbox that has not stopped. A lifetime that is
// over already stops it at once.
func (c *Control) Update(ctx context.Context, project string, id sandbox.ID, r UpdateRequest) (sandbox.Sandbox, error) {
	for name, d := range map[string]*time.Duration{"idle_timeout_s": r.IdleTimeout, "max_lifetime_s": r.MaxLifetime} {
		if d != nil {
			if err := checkTimer(name, *d); err != nil {
				return sandbox.Sandbox{}, err
			}
		}
	}
	sb, err := c.store.Update(ctx, project, id, func(sb *sandbox.Sandbox) error {
		if sb.State == sandbox.Stopping || sb.State == sandbox.Stopped {
			return usable(*sb)
		}
		if r.IdleTimeout != nil {
			sb.IdleTimeout = *r.IdleTimeout
		}
		if r.MaxLifetime != nil {
			sb.MaxLifetime = *r.MaxLifetime
		}
		merged := maps.Clone(sb.Metadata)
		if merged == nil {
			merged = make(map[string]string, len(r.Metadata))
		}
		for k, v := range r.Metadata {
			if v == nil {
				delete(merged, k)
			} else {
				merged[k] = *v
			}
		}
		sb.Metadata = merged
		return checkMetadata(merged)
	}, store.Event{Type: "updated", Cause: causeUpdate, Reason: "its settings were changed"})
	if err != nil {
		return sb, err
	}
	if sb.State == sandbox.Running {
		c.lives.watch(sb)
	}
	return sb, nil
}

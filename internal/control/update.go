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
	// EndAfter moves the deadline to this time from now, 0 takes it away. Of a sandbox that does
	// not run it is the time from its wake on.
	EndAfter *time.Duration
	// OnlyLater leaves a deadline alone that is later than EndAfter, and none.
	OnlyLater bool
	// AtEnd is what becomes of the sandbox at its deadline.
	AtEnd *sandbox.AtEnd
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

// checkDeadline refuses what cannot be a deadline.
func checkDeadline(d sandbox.Deadline) error {
	return firstOf(checkTimer("ends_in_s", d.After), checkAtEnd(d.Then))
}

func checkAtEnd(e sandbox.AtEnd) error {
	switch e {
	case "", sandbox.AtEndDelete, sandbox.AtEndHibernate, sandbox.AtEndHibernateDisk:
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "invalid_at_end", "at_end %s does not exist; use %s, %s or %s", shown(string(e)),
		sandbox.AtEndDelete, sandbox.AtEndHibernate, sandbox.AtEndHibernateDisk)
}

// deletes says that nothing is left of a sandbox at its deadline.
func deletes(e sandbox.AtEnd) bool { return e == "" || e == sandbox.AtEndDelete }

// moveDeadline changes the deadline of a record as a request says.
func (r *UpdateRequest) moveDeadline(sb *sandbox.Sandbox, now time.Time) {
	if r.AtEnd != nil {
		sb.Deadline.Then = *r.AtEnd
	}
	if r.EndAfter == nil {
		return
	}
	runs := sb.State == sandbox.Running
	if r.OnlyLater && runs && (sb.EndsAt.IsZero() || !now.Add(*r.EndAfter).After(sb.EndsAt)) {
		return
	}
	sb.Deadline.After = *r.EndAfter
	if runs {
		sb.Begin(now)
	}
}

// Update changes the settings of a sandbox that has not stopped. A lifetime that is
// over already stops it at once.
func (c *Control) Update(ctx context.Context, project string, id sandbox.ID, r UpdateRequest) (sandbox.Sandbox, error) {
	for name, d := range map[string]*time.Duration{"idle_timeout_s": r.IdleTimeout, "max_lifetime_s": r.MaxLifetime, "ends_in_s": r.EndAfter} {
		if d != nil {
			if err := checkTimer(name, *d); err != nil {
				return sandbox.Sandbox{}, err
			}
		}
	}
	if r.AtEnd != nil {
		if err := checkAtEnd(*r.AtEnd); err != nil {
			return sandbox.Sandbox{}, err
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
		r.moveDeadline(sb, time.Now())
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

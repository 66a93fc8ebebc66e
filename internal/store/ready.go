package store

import (
	"context"
	"fmt"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// Admit says whether there is room for a sandbox within the limits now. Only the
// transaction that enters it can promise it.
func (s *Store) Admit(ctx context.Context, sb sandbox.Sandbox, limits Limits) error {
	if s.Full() {
		return errDiskFull(nil)
	}
	if err := checkLimits(ctx, s.read, sb, needOf([]sandbox.Sandbox{sb}), limits); err != nil {
		return fmt.Errorf("create a sandbox: %w", err)
	}
	return nil
}

// CreateRunning enters a new sandbox whose machine takes calls already, when there is
// room for it within the limits. Its history has both its states. There is no
// intent, since nothing is left to be done.
func (s *Store) CreateRunning(ctx context.Context, sb sandbox.Sandbox, creating, running Event, limits Limits) (sandbox.Sandbox, error) {
	now := s.now()
	sb.State, sb.CreatedAt, sb.UpdatedAt = sandbox.Running, now, now
	row, err := toRow(sb)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	creating.Type, running.Type = string(sandbox.Creating), string(sandbox.Running)
	err = s.grow(ctx, func(q *storedb.Queries) error {
		if err := checkLimits(ctx, q, sb, needOf([]sandbox.Sandbox{sb}), limits); err != nil {
			return err
		}
		if err := q.InsertSandbox(ctx, storedb.InsertSandboxParams(row)); err != nil {
			return fmt.Errorf("insert the record: %w", err)
		}
		before := sb
		before.State = sandbox.Creating
		if err := insertEvent(ctx, q, now, before, creating); err != nil {
			return err
		}
		return insertEvent(ctx, q, now, sb, running)
	})
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("create the record of sandbox %s: %w", sb.ID, err)
	}
	return fromRow(row)
}

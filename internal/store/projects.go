package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// Limits are what a create must stay within. They are checked in the transaction
// that enters the record, against sums over the records, so that two creates
// never get the same room and nothing is left reserved when a record goes.
type Limits struct {
	// Defaults stand in for what the project's own quota leaves open.
	Defaults sandbox.Quota
	// Node limits the sum over all projects of the record's node.
	Node sandbox.Quota
	// OverheadMB is what each sandbox takes of the node's memory besides its own.
	OverheadMB int
}

// EnsureProject makes a project unless it is there.
func (s *Store) EnsureProject(ctx context.Context, name string) error {
	return s.grow(ctx, func(q *storedb.Queries) error {
		if _, err := q.InsertProject(ctx, storedb.InsertProjectParams{Name: name, CreatedAt: s.now().UnixMicro()}); err != nil {
			return fmt.Errorf("make project %s: %w", name, err)
		}
		return nil
	})
}

// SetQuota changes the quota of a project, which it makes when it is new.
func (s *Store) SetQuota(ctx context.Context, name string, change func(*sandbox.Quota)) (sandbox.Project, error) {
	var p sandbox.Project
	err := s.grow(ctx, func(q *storedb.Queries) error {
		if _, err := q.InsertProject(ctx, storedb.InsertProjectParams{Name: name, CreatedAt: s.now().UnixMicro()}); err != nil {
			return err
		}
		row, err := q.GetProject(ctx, name)
		if err != nil {
			return err
		}
		p = projectFromRow(row)
		change(&p.Quota)
		_, err = q.SetQuota(ctx, storedb.SetQuotaParams{
			Name: name, MaxSandboxes: int64(p.Quota.Sandboxes), MaxMemoryMb: int64(p.Quota.MemoryMB), MaxDiskMb: int64(p.Quota.DiskMB),
		})
		return err
	})
	if err != nil {
		return sandbox.Project{}, fmt.Errorf("set the quota of project %s: %w", name, err)
	}
	return p, nil
}

// SetRetention changes how long what a project keeps is kept. It makes the project when
// it is new.
func (s *Store) SetRetention(ctx context.Context, name string, change func(*sandbox.Retention)) (sandbox.Project, error) {
	var p sandbox.Project
	err := s.grow(ctx, func(q *storedb.Queries) error {
		if _, err := q.InsertProject(ctx, storedb.InsertProjectParams{Name: name, CreatedAt: s.now().UnixMicro()}); err != nil {
			return err
		}
		row, err := q.GetProject(ctx, name)
		if err != nil {
			return err
		}
		p = projectFromRow(row)
		change(&p.Retention)
		_, err = q.SetRetention(ctx, storedb.SetRetentionParams{
			Name: name, RetainHibernatedMs: p.Retention.Hibernated.Milliseconds(),
			RetainSpacesMs: p.Retention.Spaces.Milliseconds(), RetainCheckpointsMs: p.Retention.Checkpoints.Milliseconds(),
		})
		return err
	})
	if err != nil {
		return sandbox.Project{}, fmt.Errorf("set the retention of project %s: %w", name, err)
	}
	return p, nil
}

// Project returns a project, or a NotFound.
func (s *Store) Project(ctx context.Context, name string) (sandbox.Project, error) {
	row, err := s.read.GetProject(ctx, name)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Project{}, sandbox.Errorf(sandbox.NotFound, "project_not_found", "project not found")
	}
	if err != nil {
		return sandbox.Project{}, fmt.Errorf("look up project %s: %w", name, err)
	}
	return projectFromRow(row), nil
}

// Projects returns all projects by name.
func (s *Store) Projects(ctx context.Context) ([]sandbox.Project, error) {
	rows, err := s.read.ListProjects(ctx)
	if err != nil {
		return nil, fmt.Errorf("list projects: %w", err)
	}
	list := make([]sandbox.Project, 0, len(rows))
	for _, r := range rows {
		list = append(list, projectFromRow(r))
	}
	return list, nil
}

// UsageOfProject returns what is promised to the sandboxes of a project.
func (s *Store) UsageOfProject(ctx context.Context, name string) (sandbox.Usage, error) {
	return usageOfProject(ctx, s.read, name)
}

// UsageOfNode returns what is promised to the sandboxes of a node.
func (s *Store) UsageOfNode(ctx context.Context, node string) (sandbox.Usage, error) {
	return usageOfNode(ctx, s.read, node)
}

func usageOfProject(ctx context.Context, q *storedb.Queries, name string) (sandbox.Usage, error) {
	u, err := q.UsageOfProject(ctx, name)
	if err != nil {
		return sandbox.Usage{}, fmt.Errorf("sum up project %s: %w", name, err)
	}
	return sandbox.Usage{Sandboxes: int(u.Sandboxes), MemoryMB: int(u.MemoryMb), DiskMB: int(u.DiskMb)}, nil
}

func usageOfNode(ctx context.Context, q *storedb.Queries, node string) (sandbox.Usage, error) {
	u, err := q.UsageOfNode(ctx, node)
	if err != nil {
		return sandbox.Usage{}, fmt.Errorf("sum up node %s: %w", node, err)
	}
	return sandbox.Usage{Sandboxes: int(u.Sandboxes), MemoryMB: int(u.MemoryMb), DiskMB: int(u.DiskMb)}, nil
}

// checkLimits refuses a record for which there is no room. It runs before the
// record is entered, in the same transaction.
//
// The machine of a restore takes the place of another of its project: only the host
// has to have room for both.
func checkLimits(ctx context.Context, q *storedb.Queries, sb sandbox.Sandbox, need sandbox.Usage, l Limits) error {
	promised, err := usageOfNode(ctx, q, sb.Node)
	if err != nil {
		return err
	}
	if sb.Origin == sandbox.OriginRestore {
		return checkNode(need, promised, l)
	}
	used, quota, err := quotaOf(ctx, q, sb.Project, l)
	if err != nil {
		return err
	}
	if err := checkQuota(sb.Project, need, used, quota); err != nil {
		return err
	}
	return checkNode(need, promised, l)
}

// needOf is what sandboxes take that are new.
func needOf(list []sandbox.Sandbox) sandbox.Usage {
	need := sandbox.Usage{Sandboxes: len(list)}
	for _, sb := range list {
		need.MemoryMB += sb.Shape.MemoryMB
		need.DiskMB += sb.Shape.DiskMB
	}
	return need
}

func quotaOf(ctx context.Context, q *storedb.Queries, project string, l Limits) (sandbox.Usage, sandbox.Quota, error) {
	quota := l.Defaults
	row, err := q.GetProject(ctx, project)
	switch {
	case errors.Is(err, sql.ErrNoRows): // has no key any more, or never had: the defaults hold
	case err != nil:
		return sandbox.Usage{}, quota, fmt.Errorf("read the quota: %w", err)
	default:
		quota = projectFromRow(row).Quota.Or(l.Defaults)
	}
	used, err := usageOfProject(ctx, q, project)
	return used, quota, err
}

func over(used, more, limit int) bool { return limit > 0 && more > 0 && used+more > limit }

func checkQuota(project string, need, used sandbox.Usage, quota sandbox.Quota) error {
	switch {
	case over(used.Sandboxes, need.Sandboxes, quota.Sandboxes):
		return exhausted("quota_sandboxes", "project %s has %d sandboxes of the %d that it may have at one time, and %d more are asked for; delete some first",
			project, used.Sandboxes, quota.Sandboxes, need.Sandboxes)
	case over(used.MemoryMB, need.MemoryMB, quota.MemoryMB):
		return exhausted("quota_memory", "the sandboxes of project %s have %d MB of the %d MB of memory that they may have, and this needs %d MB; delete one or ask for less",
			project, used.MemoryMB, quota.MemoryMB, need.MemoryMB)
	case over(used.DiskMB, need.DiskMB, quota.DiskMB):
		return exhausted("quota_disk", "the sandboxes and snapshots of project %s have %d MB of the %d MB of disk that they may have, and this needs %d MB; delete some or ask for less",
			project, used.DiskMB, quota.DiskMB, need.DiskMB)
	}
	return nil
}

// checkNode refuses what the host has no room for.
func checkNode(need, promised sandbox.Usage, l Limits) error {
	memory := promised.MemoryMB + promised.Sandboxes*l.OverheadMB
	needed := need.MemoryMB
	if needed > 0 {
		needed += need.Sandboxes * l.OverheadMB
	}
	switch {
	case over(memory, needed, l.Node.MemoryMB):
		return full("host_memory_full", "this server's memory is full: %d MB of %d MB are promised to %d sandboxes, and this needs %d MB; try again when one has ended, or ask for less",
			memory, l.Node.MemoryMB, promised.Sandboxes, needed)
	case over(promised.DiskMB, need.DiskMB, l.Node.DiskMB):
		return full("host_disk_full", "this server's disk is full: %d MB of %d MB are promised to sandboxes and snapshots, and this needs %d MB; try again when one has ended, or ask for less",
			promised.DiskMB, l.Node.DiskMB, need.DiskMB)
	}
	return nil
}

func full(code, format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Unavailable, code, format, args...)
	e.RetryAfter = retryQuota
	return e
}

// retryQuota is when a refused create may be tried again: a guess, since it
// depends on what the project deletes.
const retryQuota = 5 * time.Second

func exhausted(code, format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Exhausted, code, format, args...)
	e.RetryAfter = retryQuota
	return e
}

func projectFromRow(r storedb.Project) sandbox.Project {
	return sandbox.Project{
		Name: r.Name, CreatedAt: time.UnixMicro(r.CreatedAt).UTC(),
		Quota: sandbox.Quota{Sandboxes: int(r.MaxSandboxes), MemoryMB: int(r.MaxMemoryMb), DiskMB: int(r.MaxDiskMb)},
		Retention: sandbox.Retention{
			Hibernated: millis(r.RetainHibernatedMs), Spaces: millis(r.RetainSpacesMs), Checkpoints: millis(r.RetainCheckpointsMs),
		},
	}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

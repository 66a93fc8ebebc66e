package control

import (
	"context"
	"errors"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// Project is a project with what it may use and what it uses.
type Project struct {
	sandbox.Project
	// Limits are those in force: the project's own, else the server's. 0 is none.
	Limits sandbox.Quota
	// Kept is the retention in force: the project's own, else the server's. 0 is for ever.
	Kept  sandbox.Retention
	Usage sandbox.Usage
}

var (
	errAdminOnly       = sandbox.Errorf(sandbox.Invalid, "admin_only", "only the server's own key may do this; run the command on the server, as the user who runs it")
	errProjectNotFound = sandbox.Errorf(sandbox.NotFound, "project_not_found", "project not found")
)

// MayUse says why a caller may not act for a project. To all but admins other
// projects do not exist.
func (c *Control) MayUse(caller sandbox.Key, project string) error {
	if caller.Admin || caller.Project == project {
		return nil
	}
	return errProjectNotFound
}

// Project returns a project that the caller may see.
func (c *Control) Project(ctx context.Context, caller sandbox.Key, name string) (Project, error) {
	if err := c.MayUse(caller, name); err != nil {
		return Project{}, err
	}
	p, err := c.store.Project(ctx, name)
	if err != nil {
		return Project{}, err
	}
	return c.describeProject(ctx, p)
}

// Projects returns the projects that the caller may see, by name.
func (c *Control) Projects(ctx context.Context, caller sandbox.Key) ([]Project, error) {
	all, err := c.store.Projects(ctx)
	if err != nil {
		return nil, err
	}
	var list []Project
	for _, p := range all {
		if c.MayUse(caller, p.Name) != nil {
			continue
		}
		d, err := c.describeProject(ctx, p)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func (c *Control) describeProject(ctx context.Context, p sandbox.Project) (Project, error) {
	used, err := c.store.UsageOfProject(ctx, p.Name)
	if err != nil {
		return Project{}, err
	}
	limits, kept := p.Quota.Or(c.cfg.Quota), p.Retention.Or(c.cfg.Retention)
	return Project{Project: p, Limits: sandbox.Quota{
		Sandboxes: max(limits.Sandboxes, 0), MemoryMB: max(limits.MemoryMB, 0), DiskMB: max(limits.DiskMB, 0),
	}, Usage: used, Kept: sandbox.Retention{
		Hibernated: max(kept.Hibernated, 0), Spaces: max(kept.Spaces, 0), Checkpoints: max(kept.Checkpoints, 0),
	}}, nil
}

// maxRetention bounds a retention: ten years.
const maxRetention = 10 * 366 * 24 * time.Hour

// SetRetention changes how long what a project keeps is kept, also what it keeps already.
// It makes the project when it is new.
func (c *Control) SetRetention(ctx context.Context, caller sandbox.Key, name string, change func(*sandbox.Retention)) (Project, error) {
	if err := c.MayUse(caller, name); err != nil {
		return Project{}, err
	}
	if !caller.Admin {
		return Project{}, errAdminOnly
	}
	if err := checkProjectName(name); err != nil {
		return Project{}, err
	}
	var wrong error
	p, err := c.store.SetRetention(ctx, name, func(r *sandbox.Retention) {
		was := *r
		change(r)
		for _, d := range []time.Duration{r.Hibernated, r.Spaces, r.Checkpoints} {
			if d > maxRetention || d > 0 && d < time.Second {
				wrong, *r = sandbox.Errorf(sandbox.Invalid, "invalid_retention", "a retention is 1 second to 10 years, 0 for the server's default, or below 0 for ever"), was
			}
		}
	})
	if err := errors.Join(wrong, err); err != nil {
		return Project{}, err
	}
	c.log.Info("project set", "project", name, "retain_hibernated", p.Retention.Hibernated, "retain_spaces", p.Retention.Spaces, "retain_checkpoints", p.Retention.Checkpoints)
	return c.describeProject(ctx, p)
}

// SetQuota changes the quota of a project, which it makes when it is new. What is
// promised already stays, also when it is more than the new quota.
func (c *Control) SetQuota(ctx context.Context, caller sandbox.Key, name string, change func(*sandbox.Quota)) (Project, error) {
	if err := c.MayUse(caller, name); err != nil {
		return Project{}, err
	}
	if !caller.Admin {
		return Project{}, errAdminOnly
	}
	if err := checkProjectName(name); err != nil {
		return Project{}, err
	}
	p, err := c.store.SetQuota(ctx, name, change)
	if err != nil {
		return Project{}, err
	}
	c.log.Info("project set", "project", name, "max_sandboxes", p.Quota.Sandboxes, "max_memory_mb", p.Quota.MemoryMB, "max_disk_mb", p.Quota.DiskMB)
	return c.describeProject(ctx, p)
}

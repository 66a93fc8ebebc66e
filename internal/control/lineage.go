package control

import (
	"context"

	"ramet.dev/ramet/internal/sandbox"
)

// Lineage is sandboxes that descend from each other, with their checkpoints.
type Lineage struct {
	Sandboxes   []sandbox.Sandbox  // newest first; stopped ones too while their record is kept
	Checkpoints []sandbox.Snapshot // newest first; also of sandboxes whose record is gone
}

// lineagePage is how many records are read at once.
const lineagePage = 1000

// Lineage returns the whole family of a sandbox: all that came of one another by forks,
// checkpoints, Spaces and merges. With an empty id it is all of the project.
func (c *Control) Lineage(ctx context.Context, project string, id sandbox.ID) (Lineage, error) {
	if id != "" {
		if _, err := c.store.Get(ctx, project, id); err != nil {
			return Lineage{}, err
		}
	}
	var all Lineage
	for o := (ListOptions{Limit: lineagePage, State: "any"}); ; {
		page, more, err := c.store.List(ctx, project, o)
		if err != nil {
			return Lineage{}, err
		}
		all.Sandboxes = append(all.Sandboxes, page...)
		if !more {
			break
		}
		last := page[len(page)-1]
		o.After = &Position{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	for q := (SnapshotQuery{Use: sandbox.UseCheckpoint, Limit: lineagePage}); ; {
		page, more, err := c.Snapshots(ctx, project, q)
		if err != nil {
			return Lineage{}, err
		}
		all.Checkpoints = append(all.Checkpoints, page...)
		if !more {
			break
		}
		q.After = SnapshotPosition(page[len(page)-1])
	}
	if id == "" {
		return all, nil
	}
	return all.family(id), nil
}

// family keeps those that are connected to a sandbox.
func (l Lineage) family(id sandbox.ID) Lineage {
	// Each id points towards the one that stands for its family.
	head := map[sandbox.ID]sandbox.ID{}
	find := func(x sandbox.ID) sandbox.ID {
		for {
			up, ok := head[x]
			if !ok {
				return x
			}
			if next, ok := head[up]; ok {
				head[x] = next
			}
			x = up
		}
	}
	join := func(a, b sandbox.ID) {
		if a, b = find(a), find(b); a != b {
			head[a] = b
		}
	}
	for _, sb := range l.Sandboxes {
		for _, other := range []sandbox.ID{sb.Parent, sb.MergedInto} {
			if other != "" {
				join(sb.ID, other)
			}
		}
	}
	var out Lineage
	for _, sb := range l.Sandboxes {
		if find(sb.ID) == find(id) {
			out.Sandboxes = append(out.Sandboxes, sb)
		}
	}
	for _, s := range l.Checkpoints {
		if find(s.Sandbox) == find(id) {
			out.Checkpoints = append(out.Checkpoints, s)
		}
	}
	return out
}

package client

import (
	"context"
	"iter"
	"net/http"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

type noWakeKey struct{}

// WithoutWake returns a context whose calls fail when they would wake a hibernated sandbox.
func WithoutWake(ctx context.Context) context.Context {
	return context.WithValue(ctx, noWakeKey{}, true)
}

// Fork makes children of a running sandbox.
func (c *Client) Fork(ctx context.Context, id string, req v1.ForkRequest) (*v1.Forked, error) {
	resp, err := c.api.ForkSandbox(ctx, id, nil, req)
	return decode[v1.Forked](c, resp, err)
}

// Merge gives parent the machine of winner, whose id is retired.
func (c *Client) Merge(ctx context.Context, parent, winner string) (*v1.Sandbox, error) {
	resp, err := c.api.MergeSandbox(ctx, parent, winner)
	return decode[v1.Sandbox](c, resp, err)
}

// Hibernate saves a sandbox and ends its machine.
func (c *Client) Hibernate(ctx context.Context, id string) (*v1.Sandbox, error) {
	resp, err := c.api.HibernateSandbox(ctx, id)
	return decode[v1.Sandbox](c, resp, err)
}

// Wake wakes a hibernated sandbox.
func (c *Client) Wake(ctx context.Context, id string) (*v1.Sandbox, error) {
	resp, err := c.api.WakeSandbox(ctx, id)
	return decode[v1.Sandbox](c, resp, err)
}

// CreateCheckpoint makes a checkpoint of a running sandbox.
func (c *Client) CreateCheckpoint(ctx context.Context, id string, req v1.CheckpointCreate) (*v1.Checkpoint, error) {
	resp, err := c.api.CreateCheckpoint(ctx, id, nil, req)
	return decode[v1.Checkpoint](c, resp, err)
}

// pageSize is how many entries are asked for at a time.
const pageSize = 200

// Checkpoints yields the checkpoints of a sandbox, or all with "", newest first, page by
// page. It ends after the first error.
func (c *Client) Checkpoints(ctx context.Context, sandbox string) iter.Seq2[*v1.Checkpoint, error] {
	return pages(func(cursor *string) ([]v1.Checkpoint, *string, error) {
		limit := pageSize
		var resp *http.Response
		var err error
		if sandbox == "" {
			resp, err = c.api.ListCheckpoints(ctx, &v1.ListCheckpointsParams{Limit: &limit, Cursor: cursor})
		} else {
			resp, err = c.api.ListSandboxCheckpoints(ctx, sandbox, &v1.ListSandboxCheckpointsParams{Limit: &limit, Cursor: cursor})
		}
		page, err := decode[v1.CheckpointList](c, resp, err)
		if err != nil {
			return nil, nil, err
		}
		return page.Checkpoints, page.NextCursor, nil
	})
}

// pages yields the entries of a list that comes in pages.
func pages[T any](page func(cursor *string) ([]T, *string, error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		var cursor *string
		for {
			list, next, err := page(cursor)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range list {
				if !yield(&list[i], nil) {
					return
				}
			}
			if next == nil || *next == "" || len(list) == 0 {
				return
			}
			cursor = next
		}
	}
}

// Checkpoint returns one checkpoint.
func (c *Client) Checkpoint(ctx context.Context, id string) (*v1.Checkpoint, error) {
	resp, err := c.api.GetCheckpoint(ctx, id)
	return decode[v1.Checkpoint](c, resp, err)
}

// DeleteCheckpoint deletes a checkpoint.
func (c *Client) DeleteCheckpoint(ctx context.Context, id string) error {
	return c.none(c.api.DeleteCheckpoint(ctx, id))
}

// Restore takes a sandbox back to one of its checkpoints.
func (c *Client) Restore(ctx context.Context, id, checkpoint string) (*v1.Sandbox, error) {
	resp, err := c.api.RestoreSandbox(ctx, id, v1.RestoreRequest{Checkpoint: checkpoint})
	return decode[v1.Sandbox](c, resp, err)
}

// Spaces yields all Spaces, newest first, page by page. It ends after the first error.
func (c *Client) Spaces(ctx context.Context) iter.Seq2[*v1.Space, error] {
	return pages(func(cursor *string) ([]v1.Space, *string, error) {
		limit := pageSize
		resp, err := c.api.ListSpaces(ctx, &v1.ListSpacesParams{Limit: &limit, Cursor: cursor})
		page, err := decode[v1.SpaceList](c, resp, err)
		if err != nil {
			return nil, nil, err
		}
		return page.Spaces, page.NextCursor, nil
	})
}

// ResumeSpace makes a sandbox of a Space, which is consumed.
func (c *Client) ResumeSpace(ctx context.Context, id string, req v1.SpaceResume) (*v1.Sandbox, error) {
	resp, err := c.api.ResumeSpace(ctx, id, nil, req)
	return decode[v1.Sandbox](c, resp, err)
}

// DeleteSpace deletes a Space.
func (c *Client) DeleteSpace(ctx context.Context, id string) error {
	return c.none(c.api.DeleteSpace(ctx, id))
}

// Lineage returns the family of a sandbox, or with "" everything of the project.
func (c *Client) Lineage(ctx context.Context, sandbox string) (*v1.Lineage, error) {
	resp, err := c.api.GetLineage(ctx, &v1.GetLineageParams{Sandbox: optional(sandbox)})
	return decode[v1.Lineage](c, resp, err)
}

// Diff says which files differ between two sandboxes.
func (c *Client) Diff(ctx context.Context, id string, req v1.DiffRequest) (*v1.Diff, error) {
	resp, err := c.api.DiffSandboxes(ctx, id, req)
	return decode[v1.Diff](c, resp, err)
}

// CollectGarbage removes what no record owns, or only lists it.
func (c *Client) CollectGarbage(ctx context.Context, dryRun bool) (*v1.GCReport, error) {
	resp, err := c.api.CollectGarbage(ctx, v1.GCRequest{DryRun: &dryRun})
	return decode[v1.GCReport](c, resp, err)
}

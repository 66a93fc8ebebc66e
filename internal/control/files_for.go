package control

import (
	"context"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// MkdirFor makes a directory, and what is missing above it, that belongs to owner. It is content
// with a directory that exists.
func (c *Control) MkdirFor(ctx context.Context, project string, id sandbox.ID, path, owner string) (*FileInfo, error) {
	if err := firstOf(checkPath("path", path), checkUser(owner)); err != nil {
		return nil, err
	}
	return short(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		return g.Files().Mkdir(ctx, &agentv1.MkdirRequest{Path: path, Parents: true, Owner: owner})
	})
}

// MoveFor moves or renames as root, over what is there. Directories that are made for it belong to owner.
func (c *Control) MoveFor(ctx context.Context, project string, id sandbox.ID, from, to, owner string) (*FileInfo, error) {
	if err := firstOf(checkPath("from", from), checkPath("to", to), checkUser(owner)); err != nil {
		return nil, err
	}
	return call(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		return g.Files().Move(ctx, &agentv1.MoveRequest{From: from, To: to, Overwrite: true, MakeParents: true, Owner: owner})
	})
}

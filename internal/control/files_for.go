package control

import (
	"context"
	"errors"
	"io"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// FileFor is a file that root writes for somebody: it needs nobody's permission, and
// what it makes belongs to Owner.
type FileFor struct {
	Path, Owner string
	// Attributes are extended attributes to set, without the prefix "user.".
	Attributes map[string]string
}

// WriteFileFor makes r the content of a file, as a whole at its end or not at all, and makes the
// directories above it that are missing.
func (c *Control) WriteFileFor(ctx context.Context, project string, id sandbox.ID, f FileFor, r io.Reader) (*FileInfo, error) {
	if err := firstOf(checkPath("path", f.Path), checkUser(f.Owner)); err != nil {
		return nil, err
	}
	return call(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // without its commit the guest keeps nothing
		stream, err := g.Files().Write(ctx)
		if err != nil {
			return nil, err
		}
		header := &agentv1.WriteHeader{Path: f.Path, MakeParents: true, Owner: f.Owner, Attributes: f.Attributes}
		if err := sendFile(header, r, stream.Send); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return stream.CloseAndReceive() // after an io.EOF it has the guest's reason
	})
}

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

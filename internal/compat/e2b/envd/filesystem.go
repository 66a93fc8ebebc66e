package envd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// filesystem is the service filesystem.Filesystem.
type filesystem struct{ *Server }

// Stat describes a file.
func (s filesystem) Stat(ctx context.Context, req *envdv1.StatRequest) (*envdv1.StatResponse, error) {
	c := callOf(ctx)
	name, err := s.resolve(ctx, c, req.Path)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	info, err := s.control.Stat(ctx, c.Project, c.ID, name, "", false)
	if err != nil {
		// Below a file there is nothing either: clients ask by this whether something exists.
		return nil, s.rpcError(ctx, notThere(err, name, "not_a_directory"))
	}
	return &envdv1.StatResponse{Entry: s.entries(ctx, c, info)[0]}, nil
}

// notThere says it in our words when there is no such file. more are other codes that mean it.
func notThere(err error, name string, more ...string) error {
	var e *sandbox.Error
	if errors.As(err, &e) && (e.Code == "file_not_found" || slices.Contains(more, e.Code)) {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("path '%s' does not exist", name))
	}
	return err
}

// MakeDir makes a directory, with what is missing above it, for the user.
func (s filesystem) MakeDir(ctx context.Context, req *envdv1.MakeDirRequest) (*envdv1.MakeDirResponse, error) {
	c := callOf(ctx)
	name, err := s.resolve(ctx, c, req.Path)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	old, err := s.control.Stat(ctx, c.Project, c.ID, name, "", true)
	switch {
	case err == nil && old.Type == "directory":
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", name))
	case err == nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", name))
	case sandbox.KindOf(err) != sandbox.NotFound:
		return nil, s.rpcError(ctx, err)
	}
	info, err := s.control.MkdirFor(ctx, c.Project, c.ID, name, c.user)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.MakeDirResponse{Entry: s.entries(ctx, c, info)[0]}, nil
}

// Move moves or renames, over a file that is there.
func (s filesystem) Move(ctx context.Context, req *envdv1.MoveRequest) (*envdv1.MoveResponse, error) {
	c := callOf(ctx)
	from, err := s.resolve(ctx, c, req.Source)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	to, err := s.resolve(ctx, c, req.Destination)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	info, err := s.control.MoveFor(ctx, c.Project, c.ID, from, to, c.user)
	if err != nil {
		return nil, s.rpcError(ctx, notThere(err, from))
	}
	return &envdv1.MoveResponse{Entry: s.entries(ctx, c, info)[0]}, nil
}

// maxDepth is as deep as a listing goes.
const maxDepth = 64

// ListDir lists a directory.
func (s filesystem) ListDir(ctx context.Context, req *envdv1.ListDirRequest) (*envdv1.ListDirResponse, error) {
	c := callOf(ctx)
	name, err := s.directory(ctx, c, req.Path)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	infos, more, err := s.control.ListFiles(ctx, c.Project, c.ID, name, "", min(max(req.Depth, 1), maxDepth))
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	if more {
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("%s has more than the %d entries of one listing; list less deep, or parts of it", name, control.MaxListed))
	}
	return &envdv1.ListDirResponse{Entries: s.entries(ctx, c, infos...)}, nil
}

// directory resolves the path of a directory, through a link to it.
func (s *Server) directory(ctx context.Context, c *call, name string) (string, error) {
	name, err := s.resolve(ctx, c, name)
	if err != nil {
		return "", err
	}
	info, err := s.control.Stat(ctx, c.Project, c.ID, name, "", true)
	if err != nil {
		return "", notThere(err, name)
	}
	if info.Type != "directory" {
		return "", connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", name))
	}
	return name, nil
}

// Remove removes a file, or a directory with all that is in it. It is content with nothing.
func (s filesystem) Remove(ctx context.Context, req *envdv1.RemoveRequest) (*envdv1.RemoveResponse, error) {
	c := callOf(ctx)
	name, err := s.resolve(ctx, c, req.Path)
	if err != nil {
		return nil, s.rpcError(ctx, err)
	}
	err = s.control.Remove(ctx, c.Project, c.ID, name, "", true)
	var e *sandbox.Error
	if err != nil && (!errors.As(err, &e) || e.Code != "file_not_found" && e.Code != "not_a_directory") {
		return nil, s.rpcError(ctx, err)
	}
	return &envdv1.RemoveResponse{}, nil
}

package control

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// FileInfo describes a file in a sandbox.
type FileInfo = agentv1.FileInfo

// fileChunk is how much of a file goes in one message, in bytes.
const fileChunk = 256 << 10

// MaxListed and maxListedBytes bound a listing: a guest can make an entry up to
// 16 MiB long.
const (
	MaxListed      = 20000
	maxListedBytes = 32 << 20
)

// Stat describes a path.
func (c *Control) Stat(ctx context.Context, project string, id sandbox.ID, path, user string, follow bool) (*FileInfo, error) {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return nil, err
	}
	return short(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		return g.Files().Stat(ctx, &agentv1.StatRequest{Path: path, User: user, Follow: follow})
	})
}

// ListFiles lists a directory, depth levels deep, and says whether there is more than a listing can hold.
func (c *Control) ListFiles(ctx context.Context, project string, id sandbox.ID, path, user string, depth uint32) (list []*FileInfo, more bool, err error) {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return nil, false, err
	}
	if depth < 1 || depth > 64 {
		return nil, false, sandbox.Errorf(sandbox.Invalid, "invalid_depth", "depth is %d; it can be 1 to 64", depth)
	}
	list, err = call(ctx, c, project, id, func(ctx context.Context, g Guest) ([]*FileInfo, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := g.Files().List(ctx, &agentv1.ListFilesRequest{Path: path, User: user, Depth: depth})
		if err != nil {
			return nil, err
		}
		defer func() { _ = stream.Close() }()
		list, size := []*FileInfo{}, 0
		for stream.Receive() {
			size += proto.Size(stream.Msg())
			if len(list) == MaxListed || size > maxListedBytes {
				more = true
				return list, nil
			}
			list = append(list, stream.Msg())
		}
		return list, stream.Err()
	})
	return list, more, err
}

// Mkdir makes a directory. Mode 0 is the agent's default.
func (c *Control) Mkdir(ctx context.Context, project string, id sandbox.ID, path, user string, mode uint32, parents bool) (*FileInfo, error) {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return nil, err
	}
	return short(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		return g.Files().Mkdir(ctx, &agentv1.MkdirRequest{Path: path, User: user, Mode: mode, Parents: parents})
	})
}

// Move moves or renames.
func (c *Control) Move(ctx context.Context, project string, id sandbox.ID, from, to, user string, overwrite bool) (*FileInfo, error) {
	if err := firstOf(checkPath("from", from), checkPath("to", to), checkUser(user)); err != nil {
		return nil, err
	}
	return call(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		return g.Files().Move(ctx, &agentv1.MoveRequest{From: from, To: to, User: user, Overwrite: overwrite})
	})
}

// Remove removes a file or, with recursive, a whole directory.
func (c *Control) Remove(ctx context.Context, project string, id sandbox.ID, path, user string, recursive bool) error {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return err
	}
	_, err := call(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.RemoveResponse, error) {
		return g.Files().Remove(ctx, &agentv1.RemoveRequest{Path: path, User: user, Recursive: recursive})
	})
	return err
}

// SetAttributes changes mode (when not nil), owner and group (when not empty).
func (c *Control) SetAttributes(ctx context.Context, project string, id sandbox.ID, path, user string, mode *uint32, owner, group string) (*FileInfo, error) {
	if err := firstOf(checkPath("path", path), checkUser(user), checkUser(owner), checkUser(group)); err != nil {
		return nil, err
	}
	if mode == nil && owner == "" && group == "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "nothing_to_change", "give at least one of mode, owner and group")
	}
	return short(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		return g.Files().SetAttributes(ctx, &agentv1.SetAttributesRequest{Path: path, User: user, Mode: mode, Owner: owner, Group: group})
	})
}

// ReadFile streams length bytes of a file from offset on, all to the end with length 0.
func (c *Control) ReadFile(ctx context.Context, project string, id sandbox.ID, path, user string, offset, length uint64) (*Download, error) {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return nil, err
	}
	d, err := download(ctx, c, project, id, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.ReadResponse], error) {
		return g.Files().Read(ctx, &agentv1.ReadRequest{Path: path, User: user, Offset: offset, Length: length})
	})
	if err != nil {
		return nil, err
	}
	if d.Info == nil {
		d.Close()
		return nil, sandbox.Errorf(sandbox.Unavailable, "stream_ended", "the sandbox did not say what the file is")
	}
	return d, nil
}

// ReadArchive streams a file or directory as a tar.
func (c *Control) ReadArchive(ctx context.Context, project string, id sandbox.ID, path, user string) (*Download, error) {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return nil, err
	}
	return download(ctx, c, project, id, func(ctx context.Context, g Guest) (*connect.ServerStreamForClient[agentv1.Chunk], error) {
		return g.Files().Archive(ctx, &agentv1.ArchiveRequest{Path: path, User: user})
	})
}

// WriteFile makes r the content of a file, as a whole at its end or not at all.
func (c *Control) WriteFile(ctx context.Context, project string, id sandbox.ID, path, user string, mode uint32, parents bool, r io.Reader) (*FileInfo, error) {
	return c.WriteFileWith(ctx, project, id, path, WriteOptions{User: user, Mode: mode, Parents: parents}, r)
}

// WriteOptions say how a file is written.
type WriteOptions struct {
	User       string            // of the guest; empty: root
	Mode       uint32            // permission bits; 0: the agent's default
	Parents    bool              // make the directories above that are missing
	Attributes map[string]string // extended attributes "user.*", without that prefix
	// Owner, for root's writes: to whom the file and the directories made for it belong.
	Owner string
}

// WriteFileWith is WriteFile with all that can be said of the file.
func (c *Control) WriteFileWith(ctx context.Context, project string, id sandbox.ID, path string, o WriteOptions, r io.Reader) (*FileInfo, error) {
	if err := firstOf(checkPath("path", path), checkUser(o.User), checkUser(o.Owner), checkAttributes(o.Attributes)); err != nil {
		return nil, err
	}
	return call(ctx, c, project, id, func(ctx context.Context, g Guest) (*FileInfo, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // without its commit the guest keeps nothing
		stream, err := g.Files().Write(ctx)
		if err != nil {
			return nil, err
		}
		header := &agentv1.WriteHeader{Path: path, User: o.User, Mode: o.Mode, MakeParents: o.Parents, Attributes: o.Attributes, Owner: o.Owner}
		if err := sendFile(header, r, stream.Send); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return stream.CloseAndReceive() // after an io.EOF it has the guest's reason
	})
}

// WriteArchive unpacks a tar into a directory.
func (c *Control) WriteArchive(ctx context.Context, project string, id sandbox.ID, path, user string, r io.Reader) (files, bytes uint64, err error) {
	if err := firstOf(checkPath("path", path), checkUser(user)); err != nil {
		return 0, 0, err
	}
	res, err := call(ctx, c, project, id, func(ctx context.Context, g Guest) (*agentv1.ExtractResponse, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := g.Files().Extract(ctx)
		if err != nil {
			return nil, err
		}
		err = stream.Send(&agentv1.ExtractRequest{Path: path, User: user})
		if err == nil {
			err = sendAll(filled{r}, fileChunk, func(b []byte) error { return stream.Send(&agentv1.ExtractRequest{Data: b}) })
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return stream.CloseAndReceive()
	})
	return res.GetFiles(), res.GetBytes(), err
}

// Download is content on its way out of a guest. It has one reader.
type Download struct {
	// Info describes a file that is read as one; nil for archives.
	Info *FileInfo

	receive func() ([]byte, error)
	stop    func()
	rest    []byte
	err     error
}

// Read reads content. Its errors are fit for a caller to read; io.EOF comes
// only at the true end.
func (d *Download) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		d.rest, d.err = d.receive()
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// Close ends the transfer.
func (d *Download) Close() { d.stop() }

// chunked is a message with content.
type chunked interface{ GetData() []byte }

// download opens a stream of content and receives its first message, so that what is
// wrong with the path is an error here and not in the middle of an answer.
func download[M any](ctx context.Context, c *Control, project string, id sandbox.ID,
	open func(context.Context, Guest) (*connect.ServerStreamForClient[M], error),
) (*Download, error) {
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	cancel := func() { end(); done() }
	stream, err := open(ctx, g)
	if err != nil {
		defer cancel()
		return nil, c.explain(ctx, sb, err)
	}
	d := &Download{
		stop: func() {
			cancel()
			_ = stream.Close() // says only what the cancel did
		},
		receive: func() ([]byte, error) {
			if stream.Receive() {
				m, _ := any(stream.Msg()).(chunked)
				return m.GetData(), nil
			}
			if err := stream.Err(); err != nil {
				return nil, c.explain(ctx, sb, err)
			}
			return nil, io.EOF
		},
	}
	if !stream.Receive() {
		defer d.stop()
		if err := stream.Err(); err != nil {
			return nil, c.explain(ctx, sb, err)
		}
		return &Download{stop: func() {}, err: io.EOF}, nil
	}
	c.answered(ctx, sb)
	if r, ok := any(stream.Msg()).(*agentv1.ReadResponse); ok {
		d.Info = r.Info
	}
	m, _ := any(stream.Msg()).(chunked)
	d.rest = m.GetData()
	return d, nil
}

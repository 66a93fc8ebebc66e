package controltest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/guest/agent/files"
)

// fileService keeps a fake guest's files below root.
type fileService struct {
	root            string
	long, nameBytes int // see Machines.LongNames
	old             bool
}

// host returns where a guest's path is on the host.
func (s fileService) host(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = "/root/" + p
	}
	return filepath.Join(s.root, filepath.Clean(p))
}

// wrap gives an error the form in which the agent sends it.
func wrap(err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err
	}
	code := connect.CodeUnknown
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = connect.CodeNotFound
	case errors.Is(err, fs.ErrExist):
		code = connect.CodeAlreadyExists
	case no == syscall.EISDIR || no == syscall.ENOTDIR || no == syscall.ENOTEMPTY:
		code = connect.CodeFailedPrecondition
	}
	e := connect.NewError(code, errors.New(no.Error()))
	e.Meta().Set(guest.ErrnoKey, unix.ErrnoName(no))
	return e
}

func (s fileService) info(p string) (*agentv1.FileInfo, error) {
	st, err := os.Lstat(p)
	if err != nil {
		return nil, wrap(err)
	}
	f := &agentv1.FileInfo{
		Path: strings.TrimPrefix(p, s.root), Type: "file", Size: uint64(st.Size()), Mode: uint32(st.Mode().Perm()),
		Owner: "root", Group: "root", ModifiedUnixNanos: st.ModTime().UnixNano(),
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		f.ChangedUnixNanos, f.Inode = sys.Ctim.Nano(), sys.Ino
	}
	f.Attributes = files.Attributes(p, false)
	switch {
	case st.IsDir():
		f.Type = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		f.Type = "symlink"
		f.LinkTarget, _ = os.Readlink(p) // gone since: no target
	}
	return f, nil
}

// Stat describes a file.
func (s fileService) Stat(_ context.Context, r *agentv1.StatRequest) (*agentv1.FileInfo, error) {
	info, err := s.info(s.host(r.Path))
	for range 8 { // links, within the guest
		if err != nil || !r.Follow || info.Type != "symlink" {
			break
		}
		to := info.LinkTarget
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(info.Path), to)
		}
		info, err = s.info(s.host(to))
	}
	if err == nil && r.Follow {
		info.Path = strings.TrimPrefix(s.host(r.Path), s.root)
	}
	return info, err
}

// Read streams a file.
func (s fileService) Read(_ context.Context, r *agentv1.ReadRequest, stream *connect.ServerStream[agentv1.ReadResponse]) error {
	info, err := s.info(s.host(r.Path))
	if err != nil {
		return err
	}
	f, err := os.Open(s.host(r.Path))
	if err != nil {
		return wrap(err)
	}
	defer f.Close()
	var from io.Reader = io.NewSectionReader(f, int64(r.Offset), 1<<62)
	if r.Length > 0 {
		from = io.LimitReader(from, int64(r.Length))
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil && !errors.Is(err, io.EOF) {
			return wrap(err)
		}
		if serr := stream.Send(&agentv1.ReadResponse{Info: info, Data: buf[:n]}); serr != nil || err != nil {
			return serr
		}
		info = nil
	}
}

// Write replaces a file.
func (s fileService) Write(_ context.Context, stream *connect.ClientStream[agentv1.WriteRequest]) (*agentv1.FileInfo, error) {
	if !stream.Receive() {
		return nil, errors.Join(stream.Err(), errors.New("no header"))
	}
	h := stream.Msg().Header
	p := s.host(h.Path)
	if h.MakeParents {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return nil, wrap(err)
		}
	}
	tmp, err := os.OpenFile(files.TemporaryName(p), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, wrap(err)
	}
	defer os.Remove(tmp.Name()) // not there after the rename
	defer tmp.Close()
	for more := true; more; more = stream.Receive() {
		m := stream.Msg() // the first has the header and may have all the rest
		if _, err := tmp.Write(m.Data); err != nil {
			return nil, wrap(err)
		}
		if m.Commit {
			mode := os.FileMode(0o644)
			if h.Mode != 0 {
				mode = os.FileMode(h.Mode)
			}
			for name, value := range h.Attributes {
				if err := unix.Fsetxattr(int(tmp.Fd()), "user."+name, []byte(value), 0); err != nil {
					return nil, wrap(err)
				}
			}
			if err := errors.Join(tmp.Chmod(mode), os.Rename(tmp.Name(), p)); err != nil {
				return nil, wrap(err)
			}
			return s.info(p)
		}
	}
	return nil, connect.NewError(connect.CodeAborted, errors.New("no commit"))
}

// List lists a directory, in the depth that is asked for.
func (s fileService) List(_ context.Context, r *agentv1.ListFilesRequest, stream *connect.ServerStream[agentv1.FileInfo]) error {
	for range s.long {
		if err := stream.Send(&agentv1.FileInfo{Path: strings.Repeat("x", s.nameBytes), Type: "file"}); err != nil {
			return err
		}
	}
	if s.long > 0 {
		return nil
	}
	return s.list(s.host(r.Path), r.Depth, stream)
}

func (s fileService) list(dir string, depth uint32, stream *connect.ServerStream[agentv1.FileInfo]) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return wrap(err)
	}
	for _, e := range entries {
		p := filepath.Join(dir, e.Name())
		info, err := s.info(p)
		if err != nil {
			return err
		}
		if err := stream.Send(info); err != nil {
			return err
		}
		if e.IsDir() && depth > 1 {
			if err := s.list(p, depth-1, stream); err != nil {
				return err
			}
		}
	}
	return nil
}

// Hash sends checksums, or says that it is too old to know how.
func (s fileService) Hash(_ context.Context, r *agentv1.HashRequest, stream *connect.ServerStream[agentv1.HashResponse]) error {
	if s.old {
		return connect.NewError(connect.CodeUnimplemented, errors.New("not implemented"))
	}
	for i, p := range r.Paths {
		res := &agentv1.HashResponse{Index: uint32(i)}
		if b, err := os.ReadFile(s.host(p)); err == nil {
			sum := sha256.Sum256(b)
			res.Sha256 = sum[:]
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
	return nil
}

// Watch tells what changes in a directory, as the real agent finds it out.
func (s fileService) Watch(ctx context.Context, r *agentv1.WatchRequest, stream *connect.ServerStream[agentv1.WatchEvent]) error {
	if s.old {
		return connect.NewError(connect.CodeUnimplemented, errors.New("not implemented"))
	}
	asIs := func(f func() error) error { return f() }
	return files.WatchAs(ctx, s.host(r.Path), r, asIs, func(e *agentv1.WatchEvent) error {
		if info := e.GetChange().GetInfo(); info != nil {
			info.Path = strings.TrimPrefix(info.Path, s.root)
		}
		return stream.Send(e)
	})
}

// Mkdir makes a directory.
func (s fileService) Mkdir(_ context.Context, r *agentv1.MkdirRequest) (*agentv1.FileInfo, error) {
	make := os.Mkdir
	if r.Parents {
		make = os.MkdirAll
	}
	if err := make(s.host(r.Path), 0o755); err != nil {
		return nil, wrap(err)
	}
	return s.info(s.host(r.Path))
}

// Move renames.
func (s fileService) Move(_ context.Context, r *agentv1.MoveRequest) (*agentv1.FileInfo, error) {
	if _, err := os.Lstat(s.host(r.To)); err == nil && !r.Overwrite {
		return nil, wrap(syscall.EEXIST)
	}
	if err := os.Rename(s.host(r.From), s.host(r.To)); err != nil {
		return nil, wrap(err)
	}
	return s.info(s.host(r.To))
}

// Remove removes.
func (s fileService) Remove(_ context.Context, r *agentv1.RemoveRequest) (*agentv1.RemoveResponse, error) {
	p := s.host(r.Path)
	if _, err := os.Lstat(p); err != nil {
		return nil, wrap(err)
	}
	remove := os.Remove
	if r.Recursive {
		remove = os.RemoveAll
	}
	return &agentv1.RemoveResponse{}, wrap(remove(p))
}

// SetAttributes changes the mode.
func (s fileService) SetAttributes(_ context.Context, r *agentv1.SetAttributesRequest) (*agentv1.FileInfo, error) {
	if r.Mode != nil {
		if err := os.Chmod(s.host(r.Path), os.FileMode(*r.Mode)); err != nil {
			return nil, wrap(err)
		}
	}
	return s.info(s.host(r.Path))
}

// Archive streams a folder as a tar.
func (s fileService) Archive(_ context.Context, r *agentv1.ArchiveRequest, stream *connect.ServerStream[agentv1.Chunk]) error {
	if _, err := s.info(s.host(r.Path)); err != nil {
		return err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := errors.Join(w.AddFS(os.DirFS(s.host(r.Path))), w.Close()); err != nil {
		return wrap(err)
	}
	for b := buf.Bytes(); len(b) > 0; {
		n := min(len(b), 64<<10)
		if err := stream.Send(&agentv1.Chunk{Data: b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Extract unpacks the regular files of a tar.
func (s fileService) Extract(_ context.Context, stream *connect.ClientStream[agentv1.ExtractRequest]) (*agentv1.ExtractResponse, error) {
	var to string
	var buf bytes.Buffer
	for stream.Receive() {
		m := stream.Msg()
		if m.Path != "" {
			to = s.host(m.Path)
		}
		buf.Write(m.Data)
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	res := &agentv1.ExtractResponse{}
	for t := tar.NewReader(&buf); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return res, nil
		}
		if err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the body is not a tar"))
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(t)
		p := filepath.Join(to, filepath.Clean("/"+h.Name))
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b, 0o644)); err != nil {
			return nil, wrap(err)
		}
		res.Files++
		res.Bytes += uint64(len(b))
	}
}

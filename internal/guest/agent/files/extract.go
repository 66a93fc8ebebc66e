package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// Extract unpacks a tar into a directory, which it makes if it is missing. No
// entry leaves that directory, neither by its name nor through a link that is
// in it: os.Root sees to that. Owners are kept for root; for any other user
// everything becomes that user's. What is there already is replaced, except
// directories, which are merged. After an error the entries before it stay.
func (Service) Extract(ctx context.Context, in *connect.ClientStream[agentv1.ExtractRequest]) (*agentv1.ExtractResponse, error) {
	if !in.Receive() {
		return nil, cutShort(in.Err())
	}
	id, dir, err := resolve(in.Msg().Path, in.Msg().User)
	if err != nil {
		return nil, err
	}
	x := &extractor{ctx: ctx, id: id, buf: make([]byte, 64<<10)}
	err = id.do(func() (err error) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		x.root, err = os.OpenRoot(dir)
		return err
	})
	if err != nil {
		return nil, fail(dir, err)
	}
	defer x.root.Close()
	if err := x.unpack(&messageReader{in: in, rest: in.Msg().Data}); err != nil {
		return nil, fail(dir, err)
	}
	return &agentv1.ExtractResponse{Files: x.files, Bytes: x.bytes}, nil
}

// messageReader reads the bytes of a stream of messages.
type messageReader struct {
	in   *connect.ClientStream[agentv1.ExtractRequest]
	rest []byte
}

func (m *messageReader) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if !m.in.Receive() {
			if err := m.in.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		m.rest = m.in.Msg().Data
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

type extractor struct {
	ctx   context.Context
	id    *identity
	root  *os.Root
	buf   []byte
	files uint64
	bytes uint64
	// directories get their times and modes when all is in them.
	directories []*tar.Header
}

// maxDirectories bounds the directories whose times are set at the end; those
// beyond get their attributes at once.
const maxDirectories = 100_000

func (x *extractor) unpack(in io.Reader) error {
	archive := tar.NewReader(in)
	for {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return broken(err)
		}
		if err := x.entry(h, archive); err != nil {
			return err
		}
	}
	// What follows the end of the archive is padding.
	if _, err := io.CopyBuffer(io.Discard, onlyReader{in}, x.buf); err != nil {
		return err
	}
	for i := len(x.directories) - 1; i >= 0; i-- {
		if err := x.id.do(func() error { return x.attributes(x.directories[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// broken is the error of bytes that are no tar. Errors of the stream stay.
func broken(err error) error {
	var remote *connect.Error
	if errors.As(err, &remote) {
		return err
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the archive is broken: %w", err))
}

func (x *extractor) entry(h *tar.Header, data io.Reader) error {
	h.Name = path.Clean(strings.TrimLeft(h.Name, "/"))
	if h.Name == ".." || strings.HasPrefix(h.Name, "../") {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("entry %.200q leaves the directory", h.Name))
	}
	x.files++
	err := x.make(h, data)
	if err != nil {
		var done *connect.Error
		if errors.As(err, &done) {
			return err
		}
		return fmt.Errorf("entry %.200q: %w", h.Name, err)
	}
	return nil
}

func (x *extractor) make(h *tar.Header, data io.Reader) error {
	if h.Typeflag == tar.TypeReg {
		return x.file(h, data)
	}
	return x.id.do(func() error {
		if h.Typeflag == tar.TypeDir {
			return x.directory(h)
		}
		if err := x.prepare(h.Name); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			if err := x.root.Symlink(h.Linkname, h.Name); err != nil {
				return err
			}
			if x.id.uid != 0 {
				return nil
			}
			return x.root.Lchown(h.Name, h.Uid, h.Gid)
		case tar.TypeLink:
			return x.root.Link(path.Clean(strings.TrimLeft(h.Linkname, "/")), h.Name)
		}
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("entry %.200q is of type %q, which cannot be unpacked", h.Name, h.Typeflag))
	})
}

// prepare makes the directory of an entry and removes what has its name.
func (x *extractor) prepare(name string) error {
	if err := x.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	st, err := x.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.IsDir() {
		return unix.EISDIR
	}
	return x.root.Remove(name)
}

func (x *extractor) directory(h *tar.Header) error {
	err := x.root.MkdirAll(h.Name, 0o755)
	if err != nil {
		return err
	}
	if len(x.directories) < maxDirectories {
		x.directories = append(x.directories, &tar.Header{
			Name: h.Name, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, Typeflag: h.Typeflag,
		})
		return nil
	}
	return x.attributes(h)
}

// file writes a regular file. Only opening it and naming its attributes needs
// the user's rights, not the copying.
func (x *extractor) file(h *tar.Header, data io.Reader) (err error) {
	var f *os.File
	err = x.id.do(func() (err error) {
		if err := x.prepare(h.Name); err != nil {
			return err
		}
		f, err = x.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(onlyWriter{f}, onlyReader{data}, x.buf)
	x.bytes += uint64(n)
	if err := errors.Join(err, f.Close()); err != nil {
		_ = x.id.do(func() error { return x.root.Remove(h.Name) }) // no half files
		var errno unix.Errno
		if errors.As(err, &errno) {
			return err
		}
		return broken(err)
	}
	return x.id.do(func() error { return x.attributes(h) })
}

// attributes gives an entry that exists its owner, mode and time.
func (x *extractor) attributes(h *tar.Header) error {
	mode := fs.FileMode(h.Mode & 0o777)
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if x.id.uid == 0 {
		if err := x.root.Lchown(h.Name, h.Uid, h.Gid); err != nil {
			return err
		}
		if h.Mode&0o4000 != 0 {
			mode |= fs.ModeSetuid
		}
		if h.Mode&0o2000 != 0 {
			mode |= fs.ModeSetgid
		}
	}
	if err := x.root.Chmod(h.Name, mode); err != nil {
		return err
	}
	if h.ModTime.IsZero() {
		return nil
	}
	return x.root.Chtimes(h.Name, time.Time{}, h.ModTime)
}

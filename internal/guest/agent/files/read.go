package files

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// maxDepth bounds how deep List descends.
const maxDepth = 64

// batchSize is how many entries of a directory are held at a time.
const batchSize = 256

// openRegular opens a regular file to read it. It does not wait for the other
// end of a pipe, and touches no device.
func openRegular(path string) (*os.File, *unix.Stat_t, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			return f, &st, nil
		case unix.S_IFDIR:
			err = unix.EISDIR
		default:
			err = connect.NewError(connect.CodeFailedPrecondition, errors.New(path+" is not a regular file"))
		}
	}
	return nil, nil, errors.Join(err, f.Close())
}

// Read streams a file or a part of it. The first message describes the file.
func (Service) Read(_ context.Context, r *agentv1.ReadRequest, out *connect.ServerStream[agentv1.ReadResponse]) error {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return err
	}
	var f *os.File
	var st *unix.Stat_t
	err = id.do(func() (err error) {
		f, st, err = openRegular(path)
		return err
	})
	if err != nil {
		return fail(path, err)
	}
	defer f.Close()
	var in io.Reader = f
	if r.Offset > 0 {
		if _, err := f.Seek(int64(min(r.Offset, 1<<62)), io.SeekStart); err != nil {
			return fail(path, err)
		}
	}
	if r.Length > 0 && r.Length < 1<<62 {
		in = io.LimitReader(f, int64(r.Length))
	}
	message := &agentv1.ReadResponse{Info: newNames().describe(fromStat(path, st))}
	buf := make([]byte, bufferFor(st.Size, r.Length))
	for {
		n, err := io.ReadFull(in, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return fail(path, err)
		}
		message.Data = buf[:n]
		if n > 0 || message.Info != nil {
			if err := out.Send(message); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
		message.Info = nil
	}
}

// bufferFor returns a size for the buffer: small files need no large one. Files
// of /proc say that they are empty and are not.
func bufferFor(size int64, length uint64) int {
	n := int64(chunkSize)
	if size > 0 {
		n = min(n, size+1) // one more, to see the end at once
	}
	if length > 0 {
		n = min(n, int64(min(length, chunkSize))+1)
	}
	return int(max(n, 4096))
}

// List streams what is in a directory, in no particular order, a directory
// before what is in it. A directory below the first that cannot be read, or
// has just gone, is left out.
func (Service) List(ctx context.Context, r *agentv1.ListFilesRequest, out *connect.ServerStream[agentv1.FileInfo]) error {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return err
	}
	depth := min(max(int(min(r.Depth, maxDepth)), 1), maxDepth)
	l := &lister{ctx: ctx, id: id, names: newNames(), send: out.Send}
	return fail(path, l.list(path, depth, true))
}

type lister struct {
	ctx   context.Context
	id    *identity
	names *names
	send  func(*agentv1.FileInfo) error
}

func (l *lister) list(dir string, depth int, top bool) error {
	var f *os.File
	err := l.id.do(func() (err error) {
		// A directory below the first is not followed when it has become a link.
		flags := os.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
		if !top {
			flags |= unix.O_NOFOLLOW
		}
		f, err = os.OpenFile(dir, flags, 0)
		return err
	})
	if err != nil {
		if !top {
			return nil
		}
		return err
	}
	defer f.Close()
	for {
		batch, err := l.batch(f, dir)
		if err != nil || len(batch) == 0 {
			return err
		}
		for _, info := range batch {
			if err := l.send(l.names.describe(info)); err != nil {
				return err
			}
			if info.Type == "directory" && depth > 1 {
				if err := l.list(info.Path, depth-1, false); err != nil {
					return err
				}
			}
		}
	}
}

// batch describes the next entries of a directory, as the user sees them.
func (l *lister) batch(f *os.File, dir string) (infos []*agentv1.FileInfo, err error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	err = l.id.do(func() error {
		for len(infos) == 0 {
			names, err := f.Readdirnames(batchSize)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, name := range names {
				info, err := stat(filepath.Join(dir, name), false)
				if errors.Is(err, unix.ENOENT) {
					continue // gone since
				}
				if err != nil {
					return err
				}
				infos = append(infos, info)
			}
		}
		return nil
	})
	return infos, err
}

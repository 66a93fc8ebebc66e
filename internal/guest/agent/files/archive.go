package files

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// maxLinks bounds how many files with several names are remembered. Beyond it,
// further names of a file become copies.
const maxLinks = 100_000

// Archive streams a tar. The names in it are relative: a file is one entry with
// its base name; a directory is "./" and what is in it. Pipes, sockets and
// devices are left out, and so is what has gone since its directory was read.
func (Service) Archive(ctx context.Context, r *agentv1.ArchiveRequest, out *connect.ServerStream[agentv1.Chunk]) error {
	id, path, err := resolve(r.Path, r.User)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(chunkWriter(out.Send), chunkSize)
	a := &archiver{ctx: ctx, id: id, names: newNames(), tar: tar.NewWriter(w), links: map[inode]string{}, buf: make([]byte, 64<<10)}
	if err := a.start(path); err != nil {
		return fail(path, err)
	}
	if err := a.tar.Close(); err != nil {
		return err
	}
	return w.Flush()
}

type chunkWriter func(*agentv1.Chunk) error

func (send chunkWriter) Write(p []byte) (int, error) {
	if err := send(&agentv1.Chunk{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

type inode struct{ dev, ino uint64 }

type archiver struct {
	ctx   context.Context
	id    *identity
	names *names
	tar   *tar.Writer
	links map[inode]string // names of files that have others
	buf   []byte
}

func (a *archiver) start(path string) error {
	// The named file itself may be a link, as with cp; those within stay links.
	err := a.id.do(func() (err error) {
		path, err = filepath.EvalSymlinks(path)
		return err
	})
	if err != nil {
		return err
	}
	st, err := a.stat(path)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return a.add(path, filepath.Base(path), st)
	}
	if err := a.add(path, "./", st); err != nil {
		return err
	}
	return a.directory(path, "")
}

func (a *archiver) stat(path string) (*unix.Stat_t, error) {
	st := new(unix.Stat_t)
	err := a.id.do(func() error { return unix.Lstat(path, st) })
	return st, err
}

// directory adds what is in dir under the given prefix.
func (a *archiver) directory(dir, prefix string) error {
	var f *os.File
	err := a.id.do(func() (err error) {
		f, err = os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		return err
	})
	if errors.Is(err, unix.ENOENT) && prefix != "" {
		return nil // it went away since it was listed
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	defer f.Close()
	for {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		batch, err := f.Readdirnames(batchSize)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) { // read to its end, or removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range batch {
			if err := a.child(filepath.Join(dir, name), prefix+name); err != nil {
				return err
			}
		}
	}
}

func (a *archiver) child(path, name string) error {
	st, err := a.stat(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return a.add(path, name, st)
	}
	if err := a.add(path, name+"/", st); err != nil {
		return err
	}
	return a.directory(path, name+"/")
}

// add writes one entry.
func (a *archiver) add(path, name string, st *unix.Stat_t) error {
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & modeBits), Uid: int(st.Uid), Gid: int(st.Gid),
		Uname: a.names.user(st.Uid), Gname: a.names.group(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()).Truncate(time.Second),
		Format:  tar.FormatPAX,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return a.file(path, h, st)
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		err := a.id.do(func() (err error) {
			h.Linkname, err = os.Readlink(path)
			return err
		})
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	default:
		return nil
	}
	return a.tar.WriteHeader(h)
}

// file writes a regular file, or a link to the same file written before.
func (a *archiver) file(path string, h *tar.Header, st *unix.Stat_t) error {
	if st.Nlink > 1 {
		key := inode{st.Dev, st.Ino}
		if first, ok := a.links[key]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return a.tar.WriteHeader(h)
		}
		if len(a.links) < maxLinks {
			a.links[key] = h.Name
		}
	}
	var (
		f      *os.File
		opened *unix.Stat_t
	)
	err := a.id.do(func() (err error) {
		f, opened, err = openRegular(path)
		return err
	})
	if errors.Is(err, unix.ENOENT) { // it went away since it was listed
		delete(a.links, inode{st.Dev, st.Ino})
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, opened.Size
	if err := a.tar.WriteHeader(h); err != nil {
		return err
	}
	// The header has the size; a file that grows is cut there, one that
	// shrinks is filled up with zeros, as tar programs do.
	n, err := io.CopyBuffer(onlyWriter{a.tar}, io.LimitReader(onlyReader{f}, opened.Size), a.buf)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(onlyWriter{a.tar}, io.LimitReader(zeros{}, opened.Size-n), a.buf)
	return err
}

// onlyWriter and onlyReader hide methods that would bypass the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

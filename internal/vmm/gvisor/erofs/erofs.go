// Package erofs writes EROFS images, the read-only root filesystems of gVisor's
// sandboxes, from the tar of a template. It writes the plain form that gVisor
// reads: 4 KiB blocks, no compression, no extended attributes, file data in blocks
// of its own so that it can be mapped.
//
// The format is that of Linux, see Documentation/filesystems/erofs.rst there.
// Start reading at Write.
package erofs

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	blockBits = 12
	blockSize = 1 << blockBits
	slotBits  = 5
	inodeSize = 64 // of the extended form
	direntLen = 12
	maxName   = 255
	maxTarget = blockSize - inodeSize // of a symlink, which shares a block with its inode

	superOffset = 1024
	superMagic  = 0xe0f5e1e2

	layoutPlain  = 0
	layoutInline = 2
)

// MaxEntries bounds the files of an image: they are held in memory while it is written.
const MaxEntries = 4 << 20

// File is a file that an image gets besides those of the tar.
type File struct {
	Path string // absolute
	Mode os.FileMode
	Data []byte
}

type node struct {
	mode     uint16 // with the type
	uid, gid uint32
	mtime    time.Time
	size     uint64
	links    uint32
	block    uint32 // first block of the data
	rdev     uint32
	target   string           // of a symlink
	children map[string]*node // of a directory; nil otherwise
	parent   *node            // of a directory

	nid uint64
	ino uint32
}

func (n *node) isDir() bool { return n.mode&unix.S_IFMT == unix.S_IFDIR }

type writer struct {
	out     *bufio.Writer
	next    uint32 // the next block to write
	root    *node
	entries int
}

// Write writes to f, which is empty, an image with the files of a tar, uncompressed,
// and with more files, which replace those of the same name.
func Write(f *os.File, archive io.Reader, more ...File) error {
	w := &writer{out: bufio.NewWriterSize(f, 1<<20), root: newDir(nil)}
	if err := w.pad(blockSize); err != nil { // the superblock's
		return err
	}
	w.next = 1
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read tar: %w", err)
		}
		if err := w.add(h, r); err != nil {
			return fmt.Errorf("write image: %s: %w", h.Name, err)
		}
	}
	for _, m := range more {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.Path, Mode: int64(m.Mode.Perm()), Size: int64(len(m.Data))}
		if err := w.add(h, strings.NewReader(string(m.Data))); err != nil {
			return fmt.Errorf("write image: %s: %w", m.Path, err)
		}
	}
	super, err := w.metadata()
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	if _, err := f.WriteAt(super, superOffset); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

func newDir(parent *node) *node {
	n := &node{mode: unix.S_IFDIR | 0o755, links: 2, children: map[string]*node{}, parent: parent}
	if parent == nil {
		n.parent = n
	}
	return n
}

// pad writes zeros.
func (w *writer) pad(n int) error {
	_, err := w.out.Write(make([]byte, n))
	return err
}

// find returns the directory that holds name, and makes what of it is missing.
func (w *writer) find(name string) (dir *node, base string, err error) {
	name = path.Clean("/" + name)
	dir = w.root
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	for i, p := range parts {
		if len(p) > maxName {
			return nil, "", errors.New("the name is too long")
		}
		if i == len(parts)-1 {
			return dir, p, nil
		}
		child := dir.children[p]
		if child == nil {
			if child, err = w.put(dir, p, newDir(dir)); err != nil {
				return nil, "", err
			}
		}
		if !child.isDir() {
			return nil, "", fmt.Errorf("%s is not a directory", p)
		}
		dir = child
	}
	return dir, "", nil
}

// put enters a file in a directory, in the place of one that was there.
func (w *writer) put(dir *node, name string, n *node) (*node, error) {
	if w.entries++; w.entries > MaxEntries {
		return nil, errors.New("there are too many files")
	}
	if old := dir.children[name]; old != nil {
		if old.isDir() {
			return nil, errors.New("a directory has the same name")
		}
		old.links--
	}
	if n.isDir() {
		dir.links++
	}
	dir.children[name] = n
	return n, nil
}

func (w *writer) add(h *tar.Header, data io.Reader) error {
	dir, base, err := w.find(h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		return w.addLink(dir, base, h.Linkname)
	}
	n := &node{
		mode: uint16(h.Mode & 0o7777), uid: uint32(h.Uid), gid: uint32(h.Gid), mtime: h.ModTime, links: 1,
		rdev: uint32(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))),
	}
	switch h.Typeflag {
	case tar.TypeReg:
		n.mode |= unix.S_IFREG
		if n.block, err = w.data(data, h.Size); err != nil {
			return err
		}
		n.size = uint64(h.Size)
	case tar.TypeDir:
		return w.addDir(dir, base, n)
	case tar.TypeSymlink:
		n.mode |= unix.S_IFLNK
		n.target, n.size = h.Linkname, uint64(len(h.Linkname))
		if n.size == 0 || n.size > maxTarget {
			return errors.New("the link's target is too long")
		}
	case tar.TypeChar:
		n.mode |= unix.S_IFCHR
	case tar.TypeBlock:
		n.mode |= unix.S_IFBLK
	case tar.TypeFifo:
		n.mode |= unix.S_IFIFO
	default:
		return fmt.Errorf("files of type %q are not known", h.Typeflag)
	}
	if base == "" {
		return errors.New("the root is a directory")
	}
	_, err = w.put(dir, base, n)
	return err
}

// addDir gives a directory its attributes; it may be there because a file in it came first.
func (w *writer) addDir(dir *node, base string, n *node) error {
	old := w.root
	if base != "" {
		if old = dir.children[base]; old == nil {
			var err error
			if old, err = w.put(dir, base, newDir(dir)); err != nil {
				return err
			}
		}
	}
	if !old.isDir() {
		return errors.New("a file has the same name")
	}
	old.mode, old.uid, old.gid, old.mtime = unix.S_IFDIR|n.mode, n.uid, n.gid, n.mtime
	return nil
}

func (w *writer) addLink(dir *node, base, target string) error {
	of, name, err := w.find(target)
	if err != nil {
		return err
	}
	n := of.children[name]
	if n == nil || n.isDir() || base == "" {
		return fmt.Errorf("%s is not a file to link to", target)
	}
	n.links++
	_, err = w.put(dir, base, n)
	return err
}

// data writes the content of a file and returns its first block.
func (w *writer) data(r io.Reader, size int64) (uint32, error) {
	first := w.next
	if size == 0 {
		return first, nil
	}
	if _, err := io.CopyN(w.out, r, size); err != nil {
		return 0, err
	}
	if over := int(size & (blockSize - 1)); over != 0 {
		if err := w.pad(blockSize - over); err != nil {
			return 0, err
		}
	}
	blocks := (size + blockSize - 1) >> blockBits
	if blocks > int64(^uint32(0)-w.next) {
		return 0, errors.New("the image is too large")
	}
	w.next += uint32(blocks)
	return first, nil
}

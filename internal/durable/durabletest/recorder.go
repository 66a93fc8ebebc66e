// Package durabletest tells what a disk would have after a power cut: a Recorder watches the
// steps of a durable.Disk and can build, between any two of them, a directory with
// what was synced, and with as much of the rest as a Loss lets survive.
package durabletest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/durable"
)

// Loss says what of the things that were not synced a power cut takes.
type Loss struct {
	name string
	// names says whether a directory has the names of now, else those of its last sync.
	names func() bool
	// content says the same of the content of a file, whose size may be kept or not.
	content func() survival
}

type survival int

const (
	synced  survival = iota // as at the last sync; empty without one
	current                 // as now
	torn                    // half of what it is now
)

// String names the loss, for a test's name.
func (l Loss) String() string { return l.name }

// Everything takes all that was not synced.
var Everything = Loss{"everything", func() bool { return false }, func() survival { return synced }}

// Content takes the content of files and leaves names, as filesystems may that order
// these and not that.
var Content = Loss{"content", func() bool { return true }, func() survival { return synced }}

// Some takes of each directory and file what chance says.
func Some(seed uint64) Loss {
	r := rand.New(rand.NewPCG(seed, 0))
	return Loss{
		"some " + strconv.FormatUint(seed, 10),
		func() bool { return r.IntN(2) == 0 },
		func() survival { return survival(r.IntN(3)) },
	}
}

type inode struct {
	file *os.File // O_PATH; holds the inode, so that its number is not used again
	dir  bool
	mode os.FileMode
	// of the last sync
	names map[string]uint64 // of a directory
	copy  string            // of a file: where its content is kept; "" is empty
}

// Recorder watches what happens below a directory.
type Recorder struct {
	root uint64
	path string // of the root
	keep string // where contents are kept
	// OnStep, when set, is called before each step, one call at a time. Image may be called in it.
	OnStep func(op durable.Op)

	step sync.Mutex // held during OnStep
	mu   sync.Mutex
	dev  uint64            // guarded by mu
	all  map[uint64]*inode // guarded by mu
	kept int               // guarded by mu
	err  error             // guarded by mu; the first
}

// New makes a Recorder of what is below root, all of which is durable. Contents
// are kept below keep.
func New(root, keep string) (*Recorder, error) {
	r := &Recorder{path: root, keep: keep, all: make(map[uint64]*inode)}
	ino, err := r.hold(unix.AT_FDCWD, root)
	if err != nil {
		return nil, err
	}
	r.root = ino
	if err := r.syncTree(ino); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close frees what the Recorder holds, and returns the first thing that went wrong.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := []error{r.err}
	for _, n := range r.all {
		errs = append(errs, n.file.Close())
	}
	r.all = nil
	return errors.Join(errs...)
}

// Before implements durable.Watcher.
func (r *Recorder) Before(op durable.Op) error {
	if r.OnStep == nil {
		return nil
	}
	r.step.Lock()
	defer r.step.Unlock()
	r.OnStep(op)
	return nil
}

// After implements durable.Watcher.
func (r *Recorder) After(op durable.Op) {
	if op.Kind != durable.Sync && op.Kind != durable.SyncDir {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rel, err := filepath.Rel(r.path, op.Path)
	if err != nil || !filepath.IsLocal(rel) {
		return // elsewhere
	}
	ino, err := r.hold(unix.AT_FDCWD, op.Path)
	if err == nil {
		err = r.sync(ino)
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("after %s: %w", op, err)
	}
}

// hold finds the inode of a name.
func (r *Recorder) hold(dir int, name string) (uint64, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &os.PathError{Op: "hold", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	st, err := f.Stat()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	sys := st.Sys().(*syscall.Stat_t)
	if r.dev == 0 {
		r.dev = sys.Dev
	}
	if sys.Dev != r.dev {
		return 0, errors.Join(fmt.Errorf("%s is on another filesystem", name), f.Close())
	}
	if r.all[sys.Ino] != nil {
		return sys.Ino, f.Close()
	}
	r.all[sys.Ino] = &inode{file: f, dir: st.IsDir(), mode: st.Mode()}
	return sys.Ino, nil
}

// path is how the kernel finds a held inode, whatever its name is now.
func (n *inode) path() string { return fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()) }

// list returns what a directory has now.
func (r *Recorder) list(n *inode) (map[string]uint64, error) {
	entries, err := os.ReadDir(n.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it was removed
	}
	if err != nil {
		return nil, err
	}
	names := make(map[string]uint64, len(entries))
	for _, e := range entries {
		if !e.IsDir() && !e.Type().IsRegular() {
			continue // sockets and the like, of things that end with the power
		}
		ino, err := r.hold(int(n.file.Fd()), e.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		names[e.Name()] = ino
	}
	return names, nil
}

func (r *Recorder) sync(ino uint64) (err error) {
	n := r.all[ino]
	if n.dir {
		n.names, err = r.list(n)
		return err
	}
	r.kept++
	n.copy = filepath.Join(r.keep, strconv.Itoa(r.kept))
	return copyFile(n.path(), n.copy, 0o600, 1)
}

func (r *Recorder) syncTree(ino uint64) error {
	if err := r.sync(ino); err != nil {
		return err
	}
	for _, child := range r.all[ino].names {
		if err := r.syncTree(child); err != nil {
			return err
		}
	}
	return nil
}

// Image fills dir, which exists and is empty, with what a disk would have if the power
// went now.
func (r *Recorder) Image(dir string, loss Loss) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.image(r.root, dir, loss)
}

func (r *Recorder) image(ino uint64, dir string, loss Loss) error {
	n := r.all[ino]
	names := n.names
	if loss.names() {
		var err error
		if names, err = r.list(n); err != nil {
			return err
		}
	}
	for name, child := range names {
		n, to := r.all[child], filepath.Join(dir, name)
		if n.dir {
			if err := os.Mkdir(to, n.mode.Perm()|0o700); err != nil {
				return err
			}
			if err := r.image(child, to, loss); err != nil {
				return err
			}
			continue
		}
		from, parts := n.copy, int64(1)
		if s := loss.content(); s != synced {
			from = n.path()
			if s == torn && !r.unchanged(n) {
				parts = 2
			}
		}
		if err := copyFile(from, to, n.mode.Perm()|0o600, parts); err != nil {
			return err
		}
	}
	return nil
}

// unchanged says that a file is as it was synced: then nothing of it can tear.
func (r *Recorder) unchanged(n *inode) bool {
	if n.copy == "" {
		return false
	}
	a, err1 := os.ReadFile(n.path())
	b, err2 := os.ReadFile(n.copy)
	return err1 == nil && err2 == nil && string(a) == string(b)
}

// copyFile copies the first of so many parts of a file. No file is an empty one.
func copyFile(from, to string, mode os.FileMode, parts int64) (err error) {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if from == "" {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, st.Size()/parts)
	return err
}

// Package watch tells what changes in a directory, by inotify(7), also in the directories
// below it and in those that come later.
//
// It does not know users: whoever opens a Watcher gives it a function that acts with a
// user's rights. Start reading at Open, then tree.go for how directories come and go.
package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The types of changes.
const (
	Create = "create" // made, or moved here
	Write  = "write"
	Remove = "remove"
	Rename = "rename" // moved away from this name
	Chmod  = "chmod"  // mode, owner, times or attributes
)

const (
	// MaxDirectories bounds what one Watcher watches where its options do not say.
	MaxDirectories = 8192
	// maxFresh bounds the names that are remembered so that nothing is told twice.
	maxFresh = 65536
	// arrival is how long after its departure a directory may arrive under another name. The kernel tells
	// the two one after the other.
	arrival = 100 * time.Millisecond
	// maxHeld bounds the events in directories that are between two names.
	maxHeld = 1024
	// maxArrived bounds the uploads whose new names are waited for.
	maxArrived = 1024
	// bufferSize is how much is read from the kernel at once, in bytes.
	bufferSize = 64 << 10

	events = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK
)

var (
	// ErrTooMany says that there are more directories than MaxDirectories, or than the
	// kernel watches for all.
	ErrTooMany = errors.New("too many directories to watch; watch one further down, or without recursive")
	// ErrBusy says that as many watchers are open as the kernel allows.
	ErrBusy = errors.New("too many watches are open in the sandbox; close some first")
	// ErrGone says that the directory that is watched was removed or moved away.
	ErrGone = errors.New("the directory that is watched was removed or moved away")
)

// Event is a change, or with Overflow the news that changes before it were lost.
type Event struct {
	Path     string // relative to the directory that is watched; "." is that itself
	Type     string
	Overflow bool
}

// Options say what to watch.
type Options struct {
	// Recursive watches the directories below too. What the user may not read is left out.
	Recursive bool
	// As runs a function with the rights of a user; nil: as it is.
	As func(func() error) error
	// Arriving says whether a name is that of a file which is still being written by somebody who
	// will give it its own. Nothing is told of it until then; then it is created and written. May be nil.
	Arriving func(name string) bool
	// Limit bounds the directories that are watched. Zero: MaxDirectories.
	Limit int
}

// Watcher watches one directory. It is used by one goroutine.
type Watcher struct {
	root string
	opts Options
	tree

	mu   sync.Mutex // guards the assignment of file, which interrupt reads
	file *os.File   // the inotify instance
	conn syscall.RawConn
	buf  []byte
	rest []byte // of buf, not looked at yet
	tell func(Event) error
	lost bool // an overflow is to be told
	// moved are directories that left their name and may arrive under another.
	moved map[uint32]*node
	// held are events in such directories, which are told when it is known where they are.
	held []record
	// arrived are the cookies of files that were arriving, and are getting their names.
	arrived map[uint32]bool
	// fresh are the names that a scan told and an event may tell again.
	fresh  map[*node]map[string]bool
	nfresh int
}

// Open watches a directory: whatever changes after it has returned will be told.
func Open(root string, o Options) (*Watcher, error) {
	if o.As == nil {
		o.As = func(f func() error) error { return f() }
	}
	if o.Arriving == nil {
		o.Arriving = func(string) bool { return false }
	}
	if o.Limit == 0 {
		o.Limit = MaxDirectories
	}
	w := &Watcher{root: root, opts: o, buf: make([]byte, bufferSize)}
	if err := w.begin(); err != nil {
		return nil, err
	}
	return w, nil
}

// begin opens an inotify instance and watches all that is there.
func (w *Watcher) begin() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return ErrBusy
	}
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	w.mu.Lock()
	w.file = os.NewFile(uintptr(fd), "inotify")
	w.mu.Unlock()
	if w.conn, err = w.file.SyscallConn(); err != nil {
		return errors.Join(err, w.file.Close())
	}
	w.rest, w.lost = nil, false
	w.held = nil
	w.moved, w.arrived = map[uint32]*node{}, map[uint32]bool{}
	w.fresh, w.nfresh = map[*node]map[string]bool{}, 0
	w.tree.init()
	w.tell = func(Event) error { return nil } // what is there is no news
	top, err := w.add(nil, "")
	if err == nil && w.opts.Recursive {
		err = w.scan(top)
	}
	if err != nil {
		return errors.Join(err, w.file.Close())
	}
	w.settled()
	return nil
}

// Close ends it. After a Run that failed there may be nothing left to close.
func (w *Watcher) Close() error {
	if err := w.file.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Run tells changes until ctx ends or tell fails, with that error. After ErrGone and
// ErrTooMany nothing more can be told.
func (w *Watcher) Run(ctx context.Context, tell func(Event) error) error {
	stop := context.AfterFunc(ctx, func() { w.interrupt() })
	defer stop()
	for {
		w.tell = tell
		if err := w.fill(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("read changes: %w", err)
		}
		for len(w.rest) > 0 && !w.lost {
			if err := w.handle(w.nextRecord()); err != nil {
				return err
			}
		}
		if !w.lost {
			continue
		}
		// Directories may have come and gone unseen, so all of it begins anew.
		if err := w.file.Close(); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if err := w.begin(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := tell(Event{Overflow: true}); err != nil {
			return err
		}
	}
}

// interrupt ends a read that waits. Where it finds an instance that is just being replaced,
// Run looks at its context after that.
func (w *Watcher) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.file.SetReadDeadline(time.Unix(1, 0))
}

// fill waits for what the kernel has to tell. What was moved away may arrive under another name
// a moment later, and has left when it does not.
func (w *Watcher) fill(ctx context.Context) error {
	for {
		waiting := len(w.moved) > 0
		if waiting {
			if err := w.file.SetReadDeadline(time.Now().Add(arrival)); err != nil {
				return err
			}
		}
		n, err := w.read()
		if waiting {
			// The end of ctx may have set a deadline too: it is looked at after this.
			if err := w.file.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				w.left()
				continue
			}
		}
		w.rest = w.buf[:n]
		return err
	}
}

func (w *Watcher) read() (n int, err error) {
	var rerr error
	err = w.conn.Read(func(fd uintptr) bool {
		for n, rerr = unix.Read(int(fd), w.buf); errors.Is(rerr, unix.EINTR); n, rerr = unix.Read(int(fd), w.buf) {
		}
		if errors.Is(rerr, unix.EAGAIN) {
			w.settled()
			return false
		}
		return true
	})
	if err = errors.Join(err, rerr); err != nil {
		n = 0
	}
	return n, err
}

// settled is called when all that the kernel had to tell was read: what scans found is
// not told again.
func (w *Watcher) settled() {
	clear(w.fresh)
	w.nfresh = 0
}

// left stops watching the directories that were moved away and did not arrive.
func (w *Watcher) left() {
	for cookie, n := range w.moved {
		delete(w.moved, cookie)
		w.forget(n)
	}
	w.held = nil // they were elsewhere
	clear(w.arrived)
}

// record is one event of the kernel.
type record struct {
	wd           int32
	mask, cookie uint32
	name         string
}

// nextRecord takes one event out of the buffer, which holds whole ones only.
func (w *Watcher) nextRecord() record {
	b := w.rest
	r := record{
		wd:   int32(binary.NativeEndian.Uint32(b)),
		mask: binary.NativeEndian.Uint32(b[4:]), cookie: binary.NativeEndian.Uint32(b[8:]),
	}
	end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
	r.name = strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
	w.rest = b[end:]
	return r
}

package watch

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// node is a directory that is watched.
type node struct {
	parent   *node // nil: the one that the user named
	name     string
	wd       int32
	children map[string]*node
	away     bool // moved from its name, and not arrived yet
}

// isAway says whether a directory, or one above it, is between two names.
func (n *node) isAway() bool {
	for ; n != nil; n = n.parent {
		if n.away {
			return true
		}
	}
	return false
}

// tree is all directories that are watched.
type tree struct {
	top  *node
	byWD map[int32]*node
}

func (t *tree) init() { t.top, t.byWD = nil, map[int32]*node{} }

// path returns the path of what is called name in a directory, relative to the one that
// the user named.
func (n *node) path(name string) string {
	for ; n.parent != nil; n = n.parent {
		name = n.name + "/" + name
	}
	return strings.TrimSuffix(name, "/")
}

func (w *Watcher) absolute(n *node, name string) string { return filepath.Join(w.root, n.path(name)) }

// add watches one directory. For one that has just gone, is none or may not be read it
// returns nil, unless it is the one that the user named.
func (w *Watcher) add(parent *node, name string) (*node, error) {
	path, mask := w.root, uint32(events)
	if parent != nil {
		path, mask = w.absolute(parent, name), events|unix.IN_DONT_FOLLOW
	}
	if len(w.byWD) >= w.opts.Limit {
		return nil, ErrTooMany
	}
	var wd int
	err := w.opts.As(func() (err error) {
		if parent != nil {
			var fs unix.Statfs_t
			if err := unix.Statfs(path, &fs); err != nil {
				return err
			}
			if kernelsOwn(int64(fs.Type)) {
				return unix.EACCES
			}
		}
		return w.control(func(fd int) { wd, err = unix.InotifyAddWatch(fd, path, mask) }, &err)
	})
	switch {
	case errors.Is(err, unix.ENOSPC):
		return nil, ErrTooMany
	case err != nil && (parent == nil || !passing(err)):
		return nil, err
	case err != nil:
		return nil, nil
	}
	n := w.byWD[int32(wd)]
	switch {
	case n == nil:
		n = &node{wd: int32(wd), children: map[string]*node{}}
		w.byWD[n.wd] = n
	case n.parent != nil && n.parent.children[n.name] == n:
		delete(n.parent.children, n.name) // the same directory under a new name
	default:
		maps.DeleteFunc(w.moved, func(_ uint32, m *node) bool { return m == n })
	}
	n.away = false
	w.attach(n, parent, name)
	return n, nil
}

func (w *Watcher) attach(n, parent *node, name string) {
	n.parent, n.name = parent, name
	if parent == nil {
		w.top = n
	} else {
		parent.children[name] = n
	}
}

// control runs f with the descriptor of the inotify instance.
func (w *Watcher) control(f func(fd int), err *error) error {
	conn, cerr := w.file.SyscallConn()
	if cerr == nil {
		cerr = conn.Control(func(fd uintptr) { f(int(fd)) })
	}
	return errors.Join(cerr, *err)
}

// passing says that an entry is left out: it has gone, or is not for this user.
func passing(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EACCES, unix.EPERM, unix.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// kernelsOwn says whether a file system is made up by the kernel, without end and without events.
func kernelsOwn(magic int64) bool {
	switch magic {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC:
		return true
	}
	return false
}

// scan tells what is in a directory that is watched already, and watches the directories
// in it. What is made meanwhile is in the kernel's queue too; fresh sorts that out.
func (w *Watcher) scan(n *node) error {
	var dir *os.File
	err := w.opts.As(func() (err error) {
		dir, err = os.OpenFile(w.absolute(n, ""), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		if n.parent != nil && passing(err) {
			return nil
		}
		return err
	}
	defer dir.Close()
	for {
		entries, err := dir.ReadDir(256)
		for _, e := range entries {
			if err := w.found(n, e.Name(), e.IsDir()); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) { // the end, or it has been removed
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// found tells an entry that a scan has come across.
func (w *Watcher) found(dir *node, name string, isDir bool) error {
	if !isDir && w.opts.Arriving(name) {
		return nil
	}
	if w.nfresh < maxFresh {
		names := w.fresh[dir]
		if names == nil {
			names = map[string]bool{}
			w.fresh[dir] = names
		}
		names[name] = true
		w.nfresh++
	}
	if !isDir {
		return w.tell(Event{Path: dir.path(name), Type: Create})
	}
	return w.enter(dir, name)
}

// enter watches a directory that has come, and tells it and what is in it. First the watch, then
// the telling: whoever makes a file in it from then on is seen. Then the look: what was made
// before is seen by at least one of them.
func (w *Watcher) enter(dir *node, name string) error {
	n, err := w.add(dir, name)
	if err != nil {
		return err
	}
	if err := w.tell(Event{Path: dir.path(name), Type: Create}); err != nil || n == nil {
		return err
	}
	return w.scan(n)
}

// forget stops watching a directory that has left, and all below.
func (w *Watcher) forget(n *node) {
	for _, child := range n.children {
		w.forget(child)
	}
	delete(w.byWD, n.wd)
	delete(w.fresh, n)
	var err error
	// It fails when the kernel has done so by itself.
	_ = w.control(func(fd int) { _, err = unix.InotifyRmWatch(fd, uint32(n.wd)) }, &err)
}

// handle tells one event of the kernel, and keeps up with the directories.
func (w *Watcher) handle(r record) error {
	if r.mask&unix.IN_Q_OVERFLOW != 0 {
		w.lost = true
		return nil
	}
	n := w.byWD[r.wd]
	if n == nil {
		return nil // of a directory that has left
	}
	if r.name == "" {
		return w.handleSelf(n, r.mask)
	}
	if n.isAway() {
		if len(w.held) == maxHeld {
			w.lost = true
			return nil
		}
		w.held = append(w.held, r)
		return nil
	}
	isDir := r.mask&unix.IN_ISDIR != 0
	if !isDir && w.opts.Arriving(r.name) {
		if r.mask&unix.IN_MOVED_FROM != 0 {
			if len(w.arrived) == maxArrived { // of files that were moved elsewhere
				clear(w.arrived)
			}
			w.arrived[r.cookie] = true
		}
		return nil
	}
	switch {
	case r.mask&unix.IN_CREATE != 0:
		if w.fresh[n][r.name] {
			delete(w.fresh[n], r.name)
			return nil
		}
		if !isDir || !w.opts.Recursive {
			return w.tell(Event{Path: n.path(r.name), Type: Create})
		}
		return w.enter(n, r.name)
	case r.mask&unix.IN_MOVED_TO != 0:
		return w.movedHere(n, r, isDir)
	case r.mask&unix.IN_MOVED_FROM != 0:
		delete(w.fresh[n], r.name)
		if child := n.children[r.name]; child != nil {
			delete(n.children, r.name)
			w.moved[r.cookie], child.away = child, true
		}
		return w.tell(Event{Path: n.path(r.name), Type: Rename})
	case r.mask&unix.IN_DELETE != 0:
		delete(w.fresh[n], r.name)
		return w.tell(Event{Path: n.path(r.name), Type: Remove})
	case r.mask&unix.IN_MODIFY != 0:
		return w.tell(Event{Path: n.path(r.name), Type: Write})
	case r.mask&unix.IN_ATTRIB != 0:
		return w.tell(Event{Path: n.path(r.name), Type: Chmod})
	}
	return nil
}

// movedHere tells what was moved to a name.
func (w *Watcher) movedHere(dir *node, r record, isDir bool) error {
	if isDir && w.opts.Recursive {
		return w.directoryHere(dir, r)
	}
	if w.fresh[dir][r.name] { // a scan has told it
		delete(w.fresh[dir], r.name)
	} else if err := w.tell(Event{Path: dir.path(r.name), Type: Create}); err != nil {
		return err
	}
	if !w.arrived[r.cookie] {
		return nil
	}
	delete(w.arrived, r.cookie)
	return w.tell(Event{Path: dir.path(r.name), Type: Write})
}

// directoryHere is movedHere for a directory. One of the tree keeps its watches; of one from
// elsewhere all that is in it is news.
func (w *Watcher) directoryHere(dir *node, r record) error {
	n := w.moved[r.cookie]
	if n == nil && dir.children[r.name] == nil {
		return w.enter(dir, r.name)
	}
	if err := w.tell(Event{Path: dir.path(r.name), Type: Create}); err != nil || n == nil { // a scan has found it already
		return err
	}
	delete(w.moved, r.cookie)
	w.attach(n, dir, r.name)
	n.away = false
	held := w.held
	w.held = nil
	for _, r := range held {
		if err := w.handle(r); err != nil {
			return err
		}
	}
	return nil
}

// handleSelf handles what happens to a watched directory itself. Changes of one below are told by
// the one that it is in.
func (w *Watcher) handleSelf(n *node, mask uint32) error {
	if n.parent == nil {
		typ := ""
		switch {
		case mask&(unix.IN_DELETE_SELF|unix.IN_UNMOUNT) != 0:
			typ = Remove
		case mask&unix.IN_MOVE_SELF != 0:
			typ = Rename
		default:
			return nil
		}
		if err := w.tell(Event{Path: ".", Type: typ}); err != nil {
			return err
		}
		return ErrGone
	}
	if mask&unix.IN_IGNORED != 0 { // the kernel has stopped watching it
		delete(w.byWD, n.wd)
		delete(w.fresh, n)
		if n.parent.children[n.name] == n {
			delete(n.parent.children, n.name)
		}
	}
	return nil
}

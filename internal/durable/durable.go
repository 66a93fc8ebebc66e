// Package durable changes files that have to survive a power cut. Everything that
// the server promises to keep, but for its records, which SQLite writes, goes
// through a Disk: each write, sync, rename and removal, with a label that says what
// for. So a test can stand between any two of them, and look at what a disk would
// have if the power went just there: what was not synced is lost, or is not, as the
// disk likes.
//
// The rules are those of POSIX and no more: the content of a file is there when the file was
// synced, and a name when its directory was. Nothing else orders anything.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Kind is what an Op does.
type Kind string

// The kinds of an Op.
const (
	Mkdir   Kind = "mkdir"
	Create  Kind = "create"
	Sync    Kind = "sync"     // of a file's content
	SyncDir Kind = "sync dir" // of the names in a directory
	Rename  Kind = "rename"
	Link    Kind = "link"
	Remove  Kind = "remove" // of a file, or of a directory and all in it
)

// Op is one step.
type Op struct {
	Label string // what for, such as "snapshot.manifest"
	Kind  Kind
	Path  string
	To    string // the new name of a Rename or Link
}

func (o Op) String() string {
	if o.To != "" {
		return fmt.Sprintf("%s: %s %s to %s", o.Label, o.Kind, o.Path, o.To)
	}
	return fmt.Sprintf("%s: %s %s", o.Label, o.Kind, o.Path)
}

// Watcher stands between the steps. Its methods are called by whoever makes them, one
// after the other where one caller makes them.
type Watcher interface {
	// Before may refuse the step.
	Before(op Op) error
	// After is called when the step has succeeded.
	After(op Op)
}

// Disk makes the steps. A nil *Disk is the real one.
type Disk struct{ watcher Watcher }

// New returns a Disk that tells the watcher of every step.
func New(w Watcher) *Disk { return &Disk{w} }

func (d *Disk) do(op Op, f func() error) error {
	if d == nil || d.watcher == nil {
		return f()
	}
	if err := d.watcher.Before(op); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	d.watcher.After(op)
	return nil
}

// Mkdir makes a directory.
func (d *Disk) Mkdir(label, dir string, mode os.FileMode) error {
	return d.do(Op{Label: label, Kind: Mkdir, Path: dir}, func() error { return os.Mkdir(dir, mode) })
}

// Open opens or makes a file, as os.OpenFile does.
func (d *Disk) Open(label, path string, flag int, mode os.FileMode) (f *os.File, err error) {
	err = d.do(Op{Label: label, Kind: Create, Path: path}, func() error {
		f, err = os.OpenFile(path, flag, mode)
		return err
	})
	if err != nil && f != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

// Sync makes the content of an open file durable.
func (d *Disk) Sync(label string, f *os.File) error {
	err := d.do(Op{Label: label, Kind: Sync, Path: f.Name()}, f.Sync)
	if err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

// SyncPath makes the content of a file durable.
func (d *Disk) SyncPath(label, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written by it
	return d.Sync(label, f)
}

// SyncDir makes the names in dir durable.
func (d *Disk) SyncDir(label, dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() // nothing was written by it
	if err := d.do(Op{Label: label, Kind: SyncDir, Path: dir}, f.Sync); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// Rename renames. The new name is durable when its directory is synced.
func (d *Disk) Rename(label, from, to string) error {
	return d.do(Op{Label: label, Kind: Rename, Path: from, To: to}, func() error { return os.Rename(from, to) })
}

// Place renames within a directory, and makes that durable.
func (d *Disk) Place(label, from, to string) error {
	if err := d.Rename(label, from, to); err != nil {
		return err
	}
	return d.SyncDir(label, filepath.Dir(to))
}

// Link gives a file another name.
func (d *Disk) Link(label, from, to string) error {
	return d.do(Op{Label: label, Kind: Link, Path: from, To: to}, func() error { return os.Link(from, to) })
}

// RemoveAll removes a file, or a directory and all in it. What is not there is no error.
func (d *Disk) RemoveAll(label, path string) error {
	return d.do(Op{Label: label, Kind: Remove, Path: path}, func() error { return os.RemoveAll(path) })
}

// Discard removes a directory so that no half of it is ever found under its name: first the
// name goes, for good, then the rest. What is not there is no error, but what is left of
// an earlier attempt is removed.
func (d *Disk) Discard(label, dir, aside string) error {
	if err := d.RemoveAll(label, aside); err != nil { // of an attempt before
		return err
	}
	err := d.Place(label, dir, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.RemoveAll(label, aside)
}

// Replace makes path from what fill writes: beside it, synced, renamed, and the
// rename synced too. So there is the old file or the new one, whatever happens.
func (d *Disk) Replace(label, path string, mode os.FileMode, fill func(*os.File) error) (err error) {
	tmp := path + ".tmp"
	f, err := d.Open(label, tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(f.Close()), os.RemoveAll(tmp))
		}
	}()
	if err := fill(f); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := d.Sync(label, f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return d.Place(label, tmp, path)
}

func ignoreClosed(err error) error {
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

// WriteFile replaces path by data.
func (d *Disk) WriteFile(label, path string, data []byte, mode os.FileMode) error {
	return d.Replace(label, path, mode, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

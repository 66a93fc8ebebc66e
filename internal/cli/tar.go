package cli

import (
	"archive/tar"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// packDir writes a directory as a tar. The names in it are relative to the
// directory; owners are root, since ours mean nothing in a sandbox. The
// directory itself is an entry only if withRoot.
func packDir(w io.Writer, dir string, withRoot bool, warn func(string, ...any)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "." && !withRoot {
			return nil
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we walk
		}
		if err != nil {
			return err
		}
		return packEntry(tw, root, name, info, warn)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func packEntry(tw *tar.Writer, root *os.Root, name string, info fs.FileInfo, warn func(string, ...any)) error {
	link := ""
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir():
	case mode&fs.ModeSymlink != 0:
		var err error
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	default:
		warn("%s is left out: it is neither a file, a directory nor a link", name)
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	h.Name = name
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "root", "root"
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	if !info.Mode().IsRegular() {
		return tw.WriteHeader(h)
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(tw, io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		err = errors.New("it became shorter while it was read")
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	return nil
}

// maxUnpacked bounds what a tar from a sandbox may become on this machine, in
// bytes: twice the largest disk. A small sparse entry can claim any size.
const maxUnpacked = 128 << 30

// unpackDir unpacks a tar of a directory as target. When target does not exist
// it appears at the end, whole, or not at all; else the tar is merged into it
// and each file is replaced as a whole.
func unpackDir(r io.Reader, target string, warn func(string, ...any)) error {
	target = filepath.Clean(target)
	if _, err := os.Stat(target); err == nil {
		return unpackInto(r, target, false, warn)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(target), "."+filepath.Base(target)+"-")
	if err != nil {
		return err
	}
	if err := unpackInto(r, tmp, true, warn); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	if err := os.Rename(tmp, target); err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// unpacker unpacks a tar that a hostile machine may have made. All its work on
// files goes through root, which no name and no link leads out of.
type unpacker struct {
	root *os.Root
	// fresh: the directory itself is new, and gets the archive's mode and time.
	fresh bool
	warn  func(string, ...any)
	left  int64
	dirs  []*tar.Header // whose mode and time are set at the end
}

func unpackInto(r io.Reader, dir string, fresh bool, warn func(string, ...any)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, fresh: fresh, warn: warn, left: maxUnpacked}
	tr := tar.NewReader(r)
	seen := false
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read what the sandbox sent: %w", err)
		}
		seen = true
		if err := u.entry(h, tr); err != nil {
			return err
		}
	}
	if !seen {
		return errors.New("the sandbox sent nothing")
	}
	return u.finishDirs()
}

// localName returns an entry's name below the target, or an error if it leads
// out of it.
func localName(name string) (string, error) {
	clean := path.Clean(name)
	if strings.ContainsRune(name, 0) || !filepath.IsLocal(clean) {
		return "", fmt.Errorf("refused %q: it leads out of the directory", name)
	}
	return clean, nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name, err := localName(h.Name)
	if err != nil {
		return err
	}
	h.Name = name
	if h.Typeflag == tar.TypeDir {
		return u.dir(h)
	}
	if name == "." {
		return errors.New("the sandbox sent a file where a directory was expected")
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		if h.Size > u.left {
			return fmt.Errorf("refused %q: the directory is larger than %s", name, byteSize(maxUnpacked))
		}
		u.left -= h.Size
		return replaceFile(u.root, name, fs.FileMode(h.Mode&0o777), h.ModTime, r)
	case tar.TypeSymlink:
		return u.place(name, func(tmp string) error { return u.root.Symlink(h.Linkname, tmp) })
	case tar.TypeLink:
		old, err := localName(h.Linkname)
		if err != nil {
			return err
		}
		return u.place(name, func(tmp string) error { return u.root.Link(old, tmp) })
	case tar.TypeXGlobalHeader:
		return nil
	}
	u.warn("%s is left out: it is neither a file, a directory nor a link", name)
	return nil
}

func (u *unpacker) dir(h *tar.Header) error {
	if h.Name == "." {
		if u.fresh {
			u.dirs = append(u.dirs, h)
		}
		return nil
	}
	if err := u.root.MkdirAll(path.Dir(h.Name), 0o777); err != nil {
		return err
	}
	// Ours to write into until the end, whatever its mode will be. A directory
	// that is there keeps its mode, as with cp.
	err := u.root.Mkdir(h.Name, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		u.dirs = append(u.dirs, h)
		return err
	}
	st, err := u.root.Stat(h.Name)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is a file here, but a directory in the sandbox", h.Name)
	}
	return nil
}

// finishDirs sets modes and times, children first: a parent may become read-only.
func (u *unpacker) finishDirs() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		h := u.dirs[i]
		mode := fs.FileMode(h.Mode&0o777) &^ umask()
		if err := u.root.Chmod(h.Name, mode); err != nil {
			return err
		}
		if err := u.root.Chtimes(h.Name, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}

// place makes something under a temporary name and renames it to name.
func (u *unpacker) place(name string, make func(tmp string) error) error {
	tmp := tempName(name)
	if err := make(tmp); err != nil {
		return err
	}
	if err := u.root.Rename(tmp, name); err != nil {
		return errors.Join(err, u.root.Remove(tmp))
	}
	// Renaming one hard link of a file to another does nothing at all.
	if err := u.root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replaceFile writes r as a new file and renames it to name in root.
func replaceFile(root *os.Root, name string, mode fs.FileMode, modified time.Time, r io.Reader) (err error) {
	tmp := tempName(name)
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(tmp))
		}
	}()
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(mode &^ umask())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if !modified.IsZero() {
		if err := root.Chtimes(tmp, modified, modified); err != nil {
			return err
		}
	}
	return root.Rename(tmp, name)
}

// tempName returns an unused name in the same directory.
func tempName(name string) string {
	return path.Join(path.Dir(name), ".ramet-"+rand.Text())
}

// fileMode reads the octal mode that the API sends.
func fileMode(octal string) fs.FileMode {
	n, err := strconv.ParseUint(octal, 8, 32)
	if err != nil {
		return 0o644
	}
	return fs.FileMode(n) & 0o777
}

// umask returns the process's file mode creation mask without changing it.
func umask() fs.FileMode {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0o022
	}
	for line := range strings.Lines(string(status)) {
		if v, found := strings.CutPrefix(line, "Umask:"); found {
			if n, err := strconv.ParseUint(strings.TrimSpace(v), 8, 32); err == nil {
				return fs.FileMode(n) & 0o777
			}
		}
	}
	return 0o022
}

package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// writeTar writes the directory root as a zstd-compressed tar: sorted, owners as
// numbers, times in whole seconds, hard links, device nodes, setuid bits and
// extended attributes (file capabilities among them) kept.
func writeTar(ctx context.Context, root, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	t := &tarWriter{root: root, w: tar.NewWriter(z), links: map[inode]string{}}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return t.add(path, e)
	})
	if err != nil {
		_ = z.Close()
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	if err := t.w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Close()
}

type inode struct{ dev, ino uint64 }

type tarWriter struct {
	root  string
	w     *tar.Writer
	links map[inode]string // first name of files with several
}

func (t *tarWriter) add(path string, e fs.DirEntry) error {
	rel, err := filepath.Rel(t.root, path)
	if err != nil {
		return err
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeSocket != 0 {
		return nil // a socket is nothing without the process that listens on it
	}
	var link string
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = "./" + rel
	if info.IsDir() {
		h.Name = strings.TrimSuffix("./"+rel, "/.") + "/"
	}
	h.Uname, h.Gname, h.Format = "", "", tar.FormatPAX
	h.ModTime, h.AccessTime, h.ChangeTime = h.ModTime.Truncate(time.Second), time.Time{}, time.Time{}
	if info.Mode().IsRegular() && st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first, seen := t.links[id]; seen {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		} else {
			t.links[id] = h.Name
		}
	}
	if h.Typeflag != tar.TypeLink {
		if h.PAXRecords, err = xattrRecords(path); err != nil {
			return err
		}
	}
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	return copyFile(t.w, path)
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// xattrRecords returns the extended attributes of a file as tar records.
func xattrRecords(path string) (map[string]string, error) {
	buf := make([]byte, 64<<10) // the kernel's limit for names and for one value
	n, err := unix.Llistxattr(path, buf)
	if err == unix.ENOTSUP || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("extended attributes of %s: %w", path, err)
	}
	records := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, fmt.Errorf("extended attribute %s of %s: %w", name, path, err)
		}
		records["SCHILY.xattr."+name] = string(value[:n])
	}
	return records, nil
}

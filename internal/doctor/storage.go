package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/config"
)

func checkDisk(_ context.Context, _ Host, s config.Server) finding {
	dir := existingParent(s.Home)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return finding{Fail, fmt.Sprintf("the free space at %s cannot be read: %v", dir, err), ""}
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return finding{Fail, "the filesystem of " + s.Home + " is read-only", "choose another data directory with --data"}
	}
	free := st.Bavail * uint64(st.Bsize)
	what := fmt.Sprintf("%s are free at %s", size(free), s.Home)
	switch {
	case free < 4<<30:
		return finding{Fail, what, "the template and its build need 4 GB; free some space or choose another data directory with --data"}
	case free < 10<<30:
		return finding{Warn, what + "; each sandbox can grow to its disk size", ""}
	case memoryFilesystem(st.Type):
		return finding{Warn, what + ", but they are memory: nothing survives a reboot", "choose another data directory with --data"}
	}
	return ok("%s", what)
}

func memoryFilesystem(kind int64) bool { return kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC }

// checkReflink tries a reflink copy in the data directory, which is the only
// certain way to know: XFS has it or not by how it was made.
func checkReflink(_ context.Context, _ Host, s config.Server) finding {
	const without = "files are copied by their data; it is only slower"
	if _, err := os.Stat(s.Home); err != nil {
		return finding{OK, "not tried: " + s.Home + " does not exist yet", ""}
	}
	works, err := tryReflink(s.Home)
	switch {
	case err != nil:
		return finding{Warn, fmt.Sprintf("cannot write in %s: %v", s.Home, err), "run as root, or choose another data directory with --data"}
	case works:
		return ok("the filesystem of %s copies by reference (reflink)", s.Home)
	}
	return ok("the filesystem of %s has no reflink; %s", s.Home, without)
}

func tryReflink(dir string) (works bool, err error) {
	src, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return false, err
	}
	defer os.Remove(src.Name())
	defer src.Close()
	dst, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return false, err
	}
	defer os.Remove(dst.Name())
	defer dst.Close()
	if _, err := src.Write(make([]byte, 4096)); err != nil {
		return false, err
	}
	err = unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOSPC) {
		return false, err
	}
	return err == nil, nil
}

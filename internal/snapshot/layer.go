package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/durable"
)

// LinkOrCopy makes dst the same file as src, an immutable layer: by a hard
// link where both are on one filesystem, else by Copy.
func LinkOrCopy(disk *durable.Disk, src, dst string) error {
	err := disk.Link("snapshot.layer", src, dst)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EMLINK) {
		return err
	}
	return Copy(disk, src, dst)
}

// Copy makes dst a copy of src that shares no writable inode with it: by
// reflink where the filesystem can, else by copying its data, holes kept.
func Copy(disk *durable.Disk, src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	return disk.Replace("snapshot.layer", dst, 0o644, func(out *os.File) error {
		if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
			return nil
		}
		st, err := in.Stat()
		if err != nil {
			return err
		}
		if err := out.Truncate(st.Size()); err != nil {
			return err
		}
		return eachExtent(in, st.Size(), func(off int64, data []byte, hole bool) error {
			if hole {
				return nil
			}
			n, err := out.WriteAt(data, off)
			if err == nil && n < len(data) {
				err = io.ErrShortWrite
			}
			if err != nil {
				return fmt.Errorf("copy layer: %w", err)
			}
			return nil
		})
	})
}

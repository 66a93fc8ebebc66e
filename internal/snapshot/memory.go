package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"ramet.dev/ramet/internal/durable"
)

// PageSize is the unit of memory in a snapshot, in bytes.
const PageSize = 4096

var zeroPage [PageSize]byte

// WriteMemory writes the first size bytes of src, a memory image, as a file of
// the snapshot in dir. Pages of zeros become holes. The checksum is of the
// whole content, zeros included.
func WriteMemory(disk *durable.Disk, dir, name string, src *os.File, size int64) (File, error) {
	h := sha256.New()
	err := disk.Replace("snapshot."+name, filepath.Join(dir, name), 0o644, func(dst *os.File) error {
		if err := dst.Truncate(size); err != nil {
			return err
		}
		return eachExtent(src, size, func(off int64, data []byte, hole bool) error {
			h.Write(data)
			if hole {
				return nil
			}
			return writeNonZero(dst, off, data)
		})
	})
	return File{Name: name, Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// writeNonZero writes the pages of data that are not all zero, in runs.
func writeNonZero(dst *os.File, off int64, data []byte) error {
	start := -1
	for i := 0; i <= len(data); i += PageSize {
		zero := i == len(data) || string(data[i:min(i+PageSize, len(data))]) == string(zeroPage[:min(PageSize, len(data)-i)])
		switch {
		case zero && start >= 0:
			if _, err := dst.WriteAt(data[start:i], off+int64(start)); err != nil {
				return err
			}
			start = -1
		case !zero && start < 0:
			start = i
		}
	}
	return nil
}

// LoadMemory copies the memory image f in dir to dst, which has f.Size bytes
// and holds zeros, and checks it on the way.
func (f File) LoadMemory(dir string, dst *os.File) error {
	src, err := f.Open(dir)
	if err != nil {
		return err
	}
	defer src.Close()
	st, err := src.Stat()
	if err != nil {
		return fmt.Errorf("load memory: %w", err)
	}
	if st.Size() != f.Size {
		return &CorruptError{src.Name(), fmt.Sprintf("it has %d bytes instead of %d", st.Size(), f.Size)}
	}
	h := sha256.New()
	err = eachExtent(src, f.Size, func(off int64, data []byte, hole bool) error {
		h.Write(data)
		if hole {
			return nil
		}
		return writeNonZero(dst, off, data)
	})
	if err != nil {
		return fmt.Errorf("load memory %s: %w", src.Name(), err)
	}
	if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return &CorruptError{src.Name(), "its checksum is wrong"}
	}
	return nil
}

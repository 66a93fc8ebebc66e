package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/durable"
)

// copyBuffer is the unit of copying and hashing, in bytes. It is a multiple of every page size.
const copyBuffer = 1 << 20

// WriteFile writes all of r as a file of the snapshot in dir.
func WriteFile(disk *durable.Disk, dir, name string, r io.Reader) (File, error) {
	h, size := sha256.New(), int64(0)
	err := disk.Replace("snapshot."+name, filepath.Join(dir, name), 0o644, func(f *os.File) (err error) {
		size, err = io.Copy(io.MultiWriter(f, h), r)
		return err
	})
	return File{Name: name, Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// Open opens the file in dir. One that is missing is damage.
func (f File) Open(dir string) (*os.File, error) {
	path := filepath.Join(dir, f.Name)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &CorruptError{path, "it is missing"}
	}
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	return file, nil
}

// Verify checks the file's size and checksum in dir.
func (f File) Verify(dir string) error {
	file, err := f.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.VerifyOpen(file)
}

// VerifyOpen is Verify for a file that is already open.
func (f File) VerifyOpen(file *os.File) error {
	sum, size, err := sumFile(file)
	if err != nil {
		return fmt.Errorf("verify snapshot: %w", err)
	}
	if size != f.Size {
		return &CorruptError{file.Name(), fmt.Sprintf("it has %d bytes instead of %d", size, f.Size)}
	}
	if sum != f.SHA256 {
		return &CorruptError{file.Name(), "its checksum is wrong"}
	}
	return nil
}

// SumFile returns the entry of an existing file.
func SumFile(path string) (File, error) {
	file, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer file.Close()
	sum, size, err := sumFile(file)
	return File{Name: filepath.Base(path), Size: size, SHA256: sum}, err
}

// sumFile hashes the whole file from its start. Holes are not read.
func sumFile(file *os.File) (sum string, size int64, err error) {
	st, err := file.Stat()
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	if err := eachExtent(file, st.Size(), func(off int64, data []byte, _ bool) error {
		h.Write(data)
		return nil
	}); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), st.Size(), nil
}

// eachExtent calls do for consecutive pieces of the file's first size bytes.
// Pieces of holes are zeros (and hole is true) and cost no reading.
func eachExtent(file *os.File, size int64, do func(off int64, data []byte, hole bool) error) error {
	buf, zeros := make([]byte, copyBuffer), make([]byte, copyBuffer)
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(file.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole is left
			data = size
		} else if err != nil {
			data = off // a filesystem that does not know holes
		}
		for ; off < min(data, size); off += min(copyBuffer, min(data, size)-off) {
			if err := do(off, zeros[:min(copyBuffer, min(data, size)-off)], true); err != nil {
				return err
			}
		}
		if off >= size {
			return nil
		}
		n := int(min(copyBuffer, size-off))
		if _, err := file.ReadAt(buf[:n], off); err != nil {
			return err
		}
		if err := do(off, buf[:n], false); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

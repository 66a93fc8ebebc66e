package snapshot

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Verified remembers which files of snapshots had the right checksum, so that each is
// read once per process and not at every start. A file counts as the same
// while its inode, size and times are.
type Verified struct {
	mu   sync.Mutex
	seen map[fileKey]string // guarded by mu; the checksum
}

type fileKey struct {
	dev, ino      uint64
	size          int64
	mtime, mtimeN int64
}

// maxVerified bounds the memory of what was seen.
const maxVerified = 4096

func keyOf(f *os.File) (fileKey, error) {
	st, err := f.Stat()
	if err != nil {
		return fileKey{}, err
	}
	s := st.Sys().(*syscall.Stat_t)
	return fileKey{s.Dev, s.Ino, s.Size, s.Mtim.Sec, s.Mtim.Nsec}, nil
}

// Check verifies an open file, unless it was before.
func (v *Verified) Check(f *os.File, want File) error {
	key, err := keyOf(f)
	if err != nil {
		return err
	}
	v.mu.Lock()
	sum, ok := v.seen[key]
	v.mu.Unlock()
	if ok && sum == want.SHA256 && key.size == want.Size {
		return nil
	}
	if err := want.VerifyOpen(f); err != nil {
		return err
	}
	v.add(key, want.SHA256)
	return nil
}

// Sum returns the entry of an open file. What was read before is not read again.
func (v *Verified) Sum(f *os.File) (File, error) {
	key, err := keyOf(f)
	if err != nil {
		return File{}, err
	}
	v.mu.Lock()
	sum, ok := v.seen[key]
	v.mu.Unlock()
	if ok {
		return File{Name: filepath.Base(f.Name()), Size: key.size, SHA256: sum}, nil
	}
	l, err := SumFile(f.Name())
	if err != nil {
		return l, err
	}
	v.add(key, l.SHA256)
	return l, nil
}

func (v *Verified) add(key fileKey, sum string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen == nil || len(v.seen) >= maxVerified {
		v.seen = make(map[fileKey]string)
	}
	v.seen[key] = sum
}

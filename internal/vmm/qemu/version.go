package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// version is that of a QEMU binary.
type version struct{ major, minor, micro int }

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.micro) }

func (v version) atLeast(major, minor int) bool {
	return v.major > major || v.major == major && v.minor >= minor
}

// binaryVersion is the version of a binary that may be upgraded while the server runs.
type binaryVersion struct {
	path string

	mu      sync.Mutex
	known   version // guarded by mu
	inode   uint64  // guarded by mu; with changed: of the file that known is of
	changed time.Time
}

func newBinaryVersion(path string) (*binaryVersion, error) {
	b := &binaryVersion{path: path}
	inode, changed, err := b.stamp()
	if err != nil {
		return nil, fmt.Errorf("ask QEMU for its version: %w", err)
	}
	if b.known, err = qemuVersion(path); err != nil {
		return nil, err
	}
	b.inode, b.changed = inode, changed
	return b, nil
}

func (b *binaryVersion) stamp() (inode uint64, changed time.Time, err error) {
	info, err := os.Stat(b.path)
	if err != nil {
		return 0, time.Time{}, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return inode, info.ModTime(), nil
}

// now asks the binary again when it is another file than the last time. One
// that cannot be asked (an upgrade is under way) counts as unchanged.
func (b *binaryVersion) now() version {
	b.mu.Lock()
	defer b.mu.Unlock()
	inode, changed, err := b.stamp()
	if err != nil || inode == b.inode && changed.Equal(b.changed) {
		return b.known
	}
	if v, err := qemuVersion(b.path); err == nil {
		b.known, b.inode, b.changed = v, inode, changed
	}
	return b.known
}

var versionPattern = regexp.MustCompile(`version (\d+)\.(\d+)\.(\d+)`)

func parseVersion(out string) (version, error) {
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return version{}, fmt.Errorf("unexpected output of qemu --version: %.100q", out)
	}
	var v version
	for i, p := range []*int{&v.major, &v.minor, &v.micro} {
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return version{}, fmt.Errorf("qemu --version: %w", err)
		}
		*p = n
	}
	return v, nil
}

func qemuVersion(binary string) (version, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return version{}, fmt.Errorf("ask QEMU for its version: %w", err)
	}
	v, err := parseVersion(string(out))
	if err != nil {
		return version{}, err
	}
	if !v.atLeast(7, 2) {
		return v, sandbox.Errorf(sandbox.Unsupported, "qemu_too_old", "QEMU %s is too old; 7.2 or later is needed", v)
	}
	return v, nil
}

package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// GoldenSums hashes the golden memories that the driver has loaded now.
// It maps the checksum that they were loaded with to what they have.
func GoldenSums(t testing.TB, d *Driver) map[string]string {
	t.Helper()
	d.goldens.mu.Lock()
	defer d.goldens.mu.Unlock()
	sums := make(map[string]string)
	for key, g := range d.goldens.all {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(g.file, 0, sandbox.MaxMemoryMB<<20)); err != nil {
			t.Fatal(err)
		}
		sums[key] = hex.EncodeToString(h.Sum(nil))
	}
	return sums
}

// LeaveState does what a server has done that is killed while a machine's device state is saved.
func LeaveState(ctx context.Context, t testing.TB, m vmm.Machine) {
	t.Helper()
	fd, err := unix.MemfdCreate("ramet-state", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "device state")
	defer f.Close()
	if _, err := m.(*Machine).addFDs(ctx, stateSet, f); err != nil {
		t.Fatal(err)
	}
}

// StateSets is how many files for device state a machine's QEMU has.
func StateSets(ctx context.Context, t testing.TB, m vmm.Machine) (n int) {
	t.Helper()
	sets, err := m.(*Machine).fdSets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		if s.name == stateSet {
			n++
		}
	}
	return n
}

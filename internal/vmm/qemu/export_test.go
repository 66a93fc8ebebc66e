package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
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

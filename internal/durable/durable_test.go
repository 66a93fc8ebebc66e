package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestReplaceFails leaves the old file when the new one cannot be written.
func TestReplaceFails(t *testing.T) {
	var disk *Disk
	path := filepath.Join(t.TempDir(), "f")
	if err := disk.WriteFile("test", path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := disk.Replace("test", path, 0o600, func(f *os.File) error {
		if _, err := f.WriteString("half"); err != nil {
			t.Fatal(err)
		}
		return boom
	}); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("content %q, %v", b, err)
	}
	if _, err := os.Stat(path + ".tmp"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half file is still there: %v", err)
	}
}

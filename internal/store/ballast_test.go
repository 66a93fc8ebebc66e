package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// smallDisk mounts a filesystem of a few megabytes.
func smallDisk(t *testing.T, mb int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mb)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all the space that there is.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func code(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func TestFullDiskRefusesTheNewAndLetsTheOldEnd(t *testing.T) {
	ctx, dir := t.Context(), smallDisk(t, 24)
	s, err := Open(ctx, filepath.Join(dir, "ramet.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ballastFile := filepath.Join(dir, "ballast")
	const size = 4 << 20
	if err := s.KeepBallast(ballastFile, size); err != nil {
		t.Fatal(err)
	}
	var made []sandbox.Sandbox
	for range 60 {
		sb, err := s.Create(ctx, sample(), "create", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, sb)
	}
	for round := range 3 {
		filler := filepath.Join(dir, "filler")
		fill(t, filler)
		// Each create that is still taken goes into space that SQLite has; soon none is.
		taken := 0
		for ; err == nil && taken < 10000; taken++ {
			var sb sandbox.Sandbox
			if sb, err = s.Create(ctx, sample(), "create", Limits{}); err == nil {
				made = append(made, sb)
			}
		}
		if code(err) != "server_disk_full" {
			t.Fatalf("round %d, after %d: %v", round, taken, err)
		}
		if _, err := os.Stat(ballastFile); !errors.Is(err, os.ErrNotExist) || !s.Full() {
			t.Errorf("round %d: the ballast is still there: %v", round, err)
		}
		if _, err := s.AddKey(ctx, sandbox.Key{ID: "k", Project: "p"}); code(err) != "server_disk_full" {
			t.Errorf("round %d: a key: %v", round, err)
		}
		// Reads and ends go on.
		for _, sb := range made[:10] {
			if _, err := s.Get(ctx, "p", sb.ID); err != nil {
				t.Fatalf("round %d: read: %v", round, err)
			}
			for _, to := range []sandbox.State{sandbox.Stopping, sandbox.Stopped} {
				if sb, err = s.Transition(ctx, sb.ID, sb.State, to, Change{End: true}); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
		}
		made = made[10:]
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		sb, err2 := s.Create(ctx, sample(), "create", Limits{})
		if err = err2; err != nil {
			t.Fatalf("round %d: it does not recover: %v", round, err)
		}
		made = append(made, sb)
		if st, err := os.Stat(ballastFile); err != nil || st.Size() != size || s.Full() {
			t.Fatalf("round %d: the ballast is not back: %v", round, err)
		}
	}
}

func TestStartOnAFullDisk(t *testing.T) {
	ctx, dir := t.Context(), smallDisk(t, 8)
	path := filepath.Join(dir, "ramet.db")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "filler"))
	// A little is needed to open at all: SQLite's index of its log.
	if err := os.Truncate(filepath.Join(dir, "filler"), 6<<20); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.KeepBallast(filepath.Join(dir, "ballast"), 4<<20); err != nil {
		t.Fatal(err)
	}
	if !s.Full() {
		t.Error("there is room for a ballast on a full disk")
	}
	if _, err := s.Create(ctx, sample(), "create", Limits{}); code(err) != "server_disk_full" {
		t.Errorf("%v", err)
	}
}

package store

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

func dataDir(t *testing.T) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{Dir: dir, Database: filepath.Join(dir, "ramet.db"), Key: filepath.Join(dir, "key")}
}

func TestBackupWhileWritingAndRestore(t *testing.T) {
	ctx, from := t.Context(), dataDir(t)
	if err := os.WriteFile(from.Key, []byte("rmt_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, from.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	made, err := s.Create(ctx, sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	// Writers go on meanwhile.
	busy, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for busy.Err() == nil {
			if _, err := s.Create(ctx, sample(), "create", Limits{}); err != nil {
				t.Error(err)
			}
		}
	})
	var backup bytes.Buffer
	err = s.Backup(ctx, from, &backup)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(from.Dir, tempPattern)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	to := dataDir(t)
	if err := RestoreBackup(ctx, to, bytes.NewReader(backup.Bytes()), false); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to.Key); err != nil || string(b) != "rmt_secret\n" {
		t.Errorf("key %q %v", b, err)
	}
	restored, err := Open(ctx, to.Database)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := restored.Get(ctx, "p", made.ID); err != nil || got.Shape != made.Shape || got.Env["A"] != "1\n" {
		t.Errorf("%+v %v", got, err)
	}
	intents, err := restored.Intents(ctx)
	if err != nil || len(intents) == 0 {
		t.Errorf("%v %v", intents, err)
	}
	if err := restored.Close(); err != nil {
		t.Fatal(err)
	}

	// Over records that are there only with force, and then they are kept.
	err = RestoreBackup(ctx, to, bytes.NewReader(backup.Bytes()), false)
	if sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("%v", err)
	}
	if err := RestoreBackup(ctx, to, bytes.NewReader(backup.Bytes()), true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to.Database + ".before-restore"); err != nil {
		t.Error(err)
	}
}

func TestBadBackupsChangeNothing(t *testing.T) {
	ctx, from := t.Context(), dataDir(t)
	if err := os.WriteFile(from.Key, []byte("rmt_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, from.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var backup bytes.Buffer
	if err := s.Backup(ctx, from, &backup); err != nil {
		t.Fatal(err)
	}
	whole := backup.Bytes()
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("not a backup"), "half": whole[:len(whole)/2], "short by one": whole[:len(whole)-1], "flipped": flipped} {
		to := dataDir(t)
		if err := RestoreBackup(ctx, to, bytes.NewReader(b), true); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		entries, err := os.ReadDir(to.Dir)
		if err != nil || len(entries) != 0 {
			t.Errorf("%s: it left %v %v", name, entries, err)
		}
	}
}

package files

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Uid
}

func TestWhatRootMakesForAnotherBelongsToThem(t *testing.T) {
	c, dir := start(t)
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old, filepath.Join(dir, "a", "b", "new")} {
		info, err := write(t, c, &agentv1.WriteHeader{Path: path, Owner: nobody, MakeParents: true}, true, "text")
		if err != nil {
			t.Fatal(err)
		}
		if info.Uid != 65534 || ownerOf(t, path) != 65534 {
			t.Errorf("%s belongs to %d", path, ownerOf(t, path))
		}
	}
	if _, err := c.Mkdir(t.Context(), &agentv1.MkdirRequest{Path: filepath.Join(dir, "c", "d"), Parents: true, Owner: nobody}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Move(t.Context(), &agentv1.MoveRequest{From: old, To: filepath.Join(dir, "e", "moved"), MakeParents: true, Owner: nobody}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a", "a/b", "c", "c/d", "e", "e/moved"} {
		if got := ownerOf(t, filepath.Join(dir, path)); got != 65534 {
			t.Errorf("%s belongs to %d", path, got)
		}
	}
	if got := ownerOf(t, dir); got != 0 {
		t.Errorf("what was there belongs to %d now", got)
	}
}

func TestOnlyRootMakesFilesForOthers(t *testing.T) {
	c, dir := start(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	_, err := write(t, c, &agentv1.WriteHeader{Path: path, User: nobody, Owner: "root"}, true, "text")
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("write: %v", err)
	}
	_, err = c.Mkdir(t.Context(), &agentv1.MkdirRequest{Path: path, User: nobody, Owner: "root"})
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("mkdir: %v", err)
	}
	_, err = write(t, c, &agentv1.WriteHeader{Path: path, Owner: "nosuchuser"}, true, "text")
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no such owner: %v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("a refused call made something")
	}
}

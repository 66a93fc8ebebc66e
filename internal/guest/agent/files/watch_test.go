package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
)

// follow opens a watch that has begun.
func follow(t *testing.T, c client, r *agentv1.WatchRequest) (*connect.ServerStreamForClient[agentv1.WatchEvent], error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	s, err := c.Watch(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() {
		return nil, s.Err()
	}
	if s.Msg().GetStarted() == nil {
		t.Fatalf("the first message is %v", s.Msg())
	}
	return s, nil
}

func next(t *testing.T, s *connect.ServerStreamForClient[agentv1.WatchEvent]) *agentv1.Change {
	t.Helper()
	if !s.Receive() {
		t.Fatal(s.Err())
	}
	return s.Msg().GetChange()
}

func TestWatch(t *testing.T) {
	c, dir := start(t)
	s, err := follow(t, c, &agentv1.WatchRequest{Path: dir, Recursive: true, Info: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "new"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := next(t, s); got.Path != "new" || got.Type != "create" || got.Info.GetType() != "directory" || got.Info.Owner != "root" {
		t.Fatal(got)
	}
	if _, err := write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, "new/f")}, true, "hello"); err != nil {
		t.Fatal(err)
	}
	// An upload waits under a name of its own until it is whole, and nothing is told of that. One that
	// takes the place of a file looks the same.
	for range 2 {
		for _, want := range []string{"create", "write"} {
			if got := next(t, s); got.Path != "new/f" || got.Type != want || got.Info.GetSize() != 5 {
				t.Fatalf("%v, want %s", got, want)
			}
		}
		if _, err := write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, "new/f")}, true, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"create", "write"} {
		if got := next(t, s); got.Path != "new/f" || got.Type != want {
			t.Fatalf("%v, want %s", got, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "new/f")); err != nil {
		t.Fatal(err)
	}
	if got := next(t, s); got.Path != "new/f" || got.Type != "remove" || got.Info != nil {
		t.Fatal(got)
	}
}

// TestWatchSeesWhatItsUserMayRead: the kernel decides with the rights of the user, also in
// directories further down.
func TestWatchSeesWhatItsUserMayRead(t *testing.T) {
	c, dir := start(t)
	for name, mode := range map[string]os.FileMode{"secret": 0o700, "open": 0o755} {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := follow(t, c, &agentv1.WatchRequest{Path: filepath.Join(dir, "secret"), User: nobody}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Fatal(err)
	}
	s, err := follow(t, c, &agentv1.WatchRequest{Path: dir, User: nobody, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"secret/f", "open/f"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := next(t, s); got.Path != "open/f" {
		t.Fatalf("nobody was told of %s", got.Path)
	}
}

func TestWatchErrors(t *testing.T) {
	c, dir := start(t)
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "ENOTDIR", filepath.Join(dir, "none"): "ENOENT"} {
		_, err := follow(t, c, &agentv1.WatchRequest{Path: path})
		var failed *connect.Error
		if !errors.As(err, &failed) || failed.Meta().Get(guest.ErrnoKey) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	s, err := follow(t, c, &agentv1.WatchRequest{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for s.Receive() {
	}
	if connect.CodeOf(s.Err()) != connect.CodeNotFound {
		t.Fatal(s.Err())
	}
}

func TestAttributes(t *testing.T) {
	c, dir := start(t)
	path := filepath.Join(dir, "f")
	header := &agentv1.WriteHeader{Path: path, User: nobody, Mode: 0o444, Attributes: map[string]string{"origin": "tëst", "e2b.k": ""}}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	info, err := write(t, c, header, true, "x")
	if connect.CodeOf(err) == connect.CodeFailedPrecondition {
		t.Skip("the file system of this machine's temporary directory keeps no attributes")
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(info *agentv1.FileInfo) {
		t.Helper()
		if len(info.Attributes) != 2 || info.Attributes["origin"] != "tëst" {
			t.Errorf("%v", info.Attributes)
		}
	}
	check(info)
	if info, err = c.Stat(t.Context(), &agentv1.StatRequest{Path: path, User: nobody, Follow: true}); err != nil {
		t.Fatal(err)
	}
	check(info)
	list, err := c.List(t.Context(), &agentv1.ListFilesRequest{Path: dir})
	if err != nil || !list.Receive() {
		t.Fatal(err, list.Err())
	}
	check(list.Msg())
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	// Who may not read the file does not see them.
	if err := os.Chmod(path, 0o000); err != nil {
		t.Fatal(err)
	}
	if info, err = c.Stat(t.Context(), &agentv1.StatRequest{Path: path, User: nobody}); err != nil || len(info.Attributes) != 0 {
		t.Fatalf("%v, %v", info, err)
	}
	// A write makes another file: it has the attributes of that write.
	if info, err = write(t, c, &agentv1.WriteHeader{Path: path}, true, "y"); err != nil || len(info.Attributes) != 0 {
		t.Fatalf("%v, %v", info, err)
	}
}

func TestAttributesAreBounded(t *testing.T) {
	c, dir := start(t)
	many := map[string]string{}
	for i := range MaxAttributes + 1 {
		many[string(rune('a'+i%26))+string(rune('a'+i/26))] = "x"
	}
	for name, set := range map[string]map[string]string{
		"too many": many, "too large": {"a": string(make([]byte, maxAttributeBytes))}, "no name": {"": "x"},
		"long name": {string(make([]byte, 256)): "x"}, "NUL": {"a\x00b": "x"},
	} {
		_, err := write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, "f"), Attributes: set}, true, "x")
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "f")); !os.IsNotExist(err) {
		t.Errorf("a refused write left a file: %v", err)
	}
}

package envd_test

import (
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"

	envdv1 "ramet.dev/ramet/api/envd/v1"
)

func (e *env) put(path, content string) {
	e.t.Helper()
	if res, body := e.do("POST", "/files?path="+url.QueryEscape(path), content, header{"Content-Type": "application/octet-stream"}); res.StatusCode != 200 {
		e.t.Fatalf("put %s: %d %s", path, res.StatusCode, body)
	}
}

func TestStatTellsWhatAFileIs(t *testing.T) {
	e := start(t)
	e.put("/data/dir/file.txt", "five!")
	e.run(bash("ln -s file.txt ../data/dir/link; ln -s nothing ../data/dir/broken"), nil)
	res, err := e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: "/data/dir/file.txt"})
	if err != nil {
		t.Fatal(err)
	}
	f := res.Entry
	if f.Name != "file.txt" || f.Path != "/data/dir/file.txt" || f.Type != envdv1.FileType_FILE_TYPE_FILE || f.Size != 5 ||
		f.Mode != 0o644 || f.Permissions != "-rw-r--r--" || f.Owner != "root" || f.SymlinkTarget != nil || f.ModifiedTime.AsTime().IsZero() {
		t.Errorf("%v", f)
	}
	res, err = e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: "/data/dir"})
	if err != nil || res.Entry.Type != envdv1.FileType_FILE_TYPE_DIRECTORY || res.Entry.Permissions != "drwxr-xr-x" {
		t.Errorf("%v %v", res, err)
	}
	res, err = e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: "/data/dir/link"})
	if err != nil || !res.Entry.IsSymlink || res.Entry.GetSymlinkTarget() != "/data/dir/file.txt" || res.Entry.Type != envdv1.FileType_FILE_TYPE_FILE {
		t.Errorf("%v %v", res, err)
	}
	res, err = e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: "/data/dir/broken"})
	if err != nil || res.Entry.Type != envdv1.FileType_FILE_TYPE_SYMLINK {
		t.Errorf("%v %v", res, err)
	}
	if _, err = e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: "/none"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("%v", err)
	}
}

func TestRelativePathsStartAtHome(t *testing.T) {
	e := start(t)
	e.put("notes/a.txt", "x")
	for _, path := range []string{"notes/a.txt", "~/notes/a.txt", "/root/notes/a.txt", "./notes//a.txt"} {
		res, err := e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: path})
		if err != nil || res.Entry.Path != "/root/notes/a.txt" {
			t.Errorf("%s: %v %v", path, res, err)
		}
	}
	res, err := e.files(nil).Stat(t.Context(), &envdv1.StatRequest{Path: "~"})
	if err != nil || res.Entry.Path != "/root" {
		t.Errorf("~: %v %v", res, err)
	}
}

func TestDirectories(t *testing.T) {
	e := start(t)
	f := e.files(nil)
	made, err := f.MakeDir(t.Context(), &envdv1.MakeDirRequest{Path: "/a/b/c"})
	if err != nil || made.Entry.Path != "/a/b/c" || made.Entry.Type != envdv1.FileType_FILE_TYPE_DIRECTORY {
		t.Fatalf("%v %v", made, err)
	}
	if _, err := f.MakeDir(t.Context(), &envdv1.MakeDirRequest{Path: "/a/b/c"}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("again: %v", err)
	}
	e.put("/a/file", "1")
	if _, err := f.MakeDir(t.Context(), &envdv1.MakeDirRequest{Path: "/a/file"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("over a file: %v", err)
	}
	// What exists is asked so, and below a file nothing does.
	if _, err := f.Stat(t.Context(), &envdv1.StatRequest{Path: "/a/file/x"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("below a file: %v", err)
	}
	for depth, want := range map[uint32]string{0: "/a/b /a/file", 1: "/a/b /a/file", 2: "/a/b /a/b/c /a/file"} {
		res, err := f.ListDir(t.Context(), &envdv1.ListDirRequest{Path: "/a", Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range res.Entries {
			got = append(got, e.Path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("depth %d: %v", depth, got)
		}
	}
	if _, err := f.ListDir(t.Context(), &envdv1.ListDirRequest{Path: "/none"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("list nothing: %v", err)
	}
	if _, err := f.ListDir(t.Context(), &envdv1.ListDirRequest{Path: "/a/file"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("list a file: %v", err)
	}
}

func TestMoveAndRemove(t *testing.T) {
	e := start(t)
	f := e.files(nil)
	e.put("/one", "1")
	e.put("/two", "2")
	moved, err := f.Move(t.Context(), &envdv1.MoveRequest{Source: "/one", Destination: "/two"})
	if err != nil || moved.Entry.Path != "/two" || moved.Entry.Name != "two" {
		t.Fatalf("%v %v", moved, err)
	}
	if _, body := e.do("GET", "/files?path=/two", "", nil); body != "1" {
		t.Errorf("content %q", body)
	}
	if _, err := f.Move(t.Context(), &envdv1.MoveRequest{Source: "/one", Destination: "/three"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("move nothing: %v", err)
	}
	e.put("/tree/a/b", "1")
	for range 2 { // the second time there is nothing
		if _, err := f.Remove(t.Context(), &envdv1.RemoveRequest{Path: "/tree"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Stat(t.Context(), &envdv1.StatRequest{Path: "/tree"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("it is there: %v", err)
	}
}

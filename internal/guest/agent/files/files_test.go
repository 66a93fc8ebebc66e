package files

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest"
)

// nobody is a user by number that every system has.
const nobody = "65534"

type client = agentv1connect.FilesClient

// start serves the files of this machine over HTTP/2, as the agent does.
func start(t *testing.T) (client, string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to act as other users")
	}
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewFilesHandler(Service{}))
	s := httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	// t.TempDir is for root only; nobody must get through it.
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return agentv1connect.NewFilesClient(s.Client(), s.URL), dir
}

func write(t *testing.T, c client, header *agentv1.WriteHeader, commit bool, parts ...string) (*agentv1.FileInfo, error) {
	t.Helper()
	w, err := c.Write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A refused upload ends the stream early; the answer says why.
	sendErr := w.Send(&agentv1.WriteRequest{Header: header})
	for i, p := range parts {
		if sendErr != nil {
			break
		}
		sendErr = w.Send(&agentv1.WriteRequest{Data: []byte(p), Commit: commit && i == len(parts)-1})
	}
	return w.CloseAndReceive()
}

func read(t *testing.T, c client, r *agentv1.ReadRequest) (string, *agentv1.FileInfo, error) {
	t.Helper()
	s, err := c.Read(t.Context(), r)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	var out bytes.Buffer
	var info *agentv1.FileInfo
	for s.Receive() {
		if s.Msg().Info != nil {
			info = s.Msg().Info
		}
		out.Write(s.Msg().Data)
	}
	return out.String(), info, s.Err()
}

func wantErrno(t *testing.T, err error, code connect.Code, errno string) {
	t.Helper()
	var e *connect.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want %s", err, errno)
	}
	if e.Code() != code || e.Meta().Get(errnoKey) != errno {
		t.Fatalf("%v with errno %q, want %v with %q", err, e.Meta().Get(errnoKey), code, errno)
	}
}

func mustStat(t *testing.T, path string) *unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return &st
}

func noTemporaryFiles(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, ".ramet-*"))
	if err != nil || len(left) > 0 {
		t.Fatalf("left over: %v, %v", left, err)
	}
}

func TestErrnoKeyIsTheHosts(t *testing.T) {
	if errnoKey != guest.ErrnoKey {
		t.Fatalf("%q, and the host looks for %q", errnoKey, guest.ErrnoKey)
	}
}

func TestWriteAndReadBack(t *testing.T) {
	c, dir := start(t)
	path := filepath.Join(dir, "deep", "er", "file")
	binary := string([]byte{0, 0xff, 0xfe, '\r', '\n'}) + strings.Repeat("x", 600_000)
	info, err := write(t, c, &agentv1.WriteHeader{Path: path, MakeParents: true, Mode: 0o4750}, true, binary[:10], binary[10:])
	if err != nil {
		t.Fatal(err)
	}
	if info.Size != uint64(len(binary)) || info.Mode != 0o4750 || info.Type != "file" || info.Owner != "root" {
		t.Fatalf("info %v", info)
	}
	got, info, err := read(t, c, &agentv1.ReadRequest{Path: path})
	if err != nil || got != binary || info.GetSize() != uint64(len(binary)) {
		t.Fatalf("%d bytes, %v, %v", len(got), info, err)
	}
	noTemporaryFiles(t, filepath.Dir(path))
}

func TestReadRanges(t *testing.T) {
	c, dir := start(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		offset, length uint64
		want           string
	}{
		{0, 0, "0123456789"},
		{3, 0, "3456789"},
		{3, 2, "34"},
		{8, 100, "89"},
		{10, 5, ""},
		{1000, 0, ""},
		{0, 1, "0"},
		{2, 1 << 63, "23456789"},
	} {
		got, info, err := read(t, c, &agentv1.ReadRequest{Path: path, Offset: r.offset, Length: r.length})
		if err != nil || got != r.want || info == nil {
			t.Errorf("offset %d length %d: %q, %v, %v", r.offset, r.length, got, info, err)
		}
	}
	if got, _, err := read(t, c, &agentv1.ReadRequest{Path: "/proc/version"}); err != nil || !strings.HasPrefix(got, "Linux") {
		t.Errorf("a file of /proc: %q, %v", got, err)
	}
}

func TestAbortedUploadKeepsTheOldFile(t *testing.T) {
	c, dir := start(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t, c, &agentv1.WriteHeader{Path: path}, false, "half of the"); connect.CodeOf(err) != connect.CodeCanceled {
		t.Fatalf("error %v", err)
	}
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Fatalf("the file has %q", got)
	}
	noTemporaryFiles(t, dir)
}

func TestReplacedFileKeepsModeAndOwner(t *testing.T) {
	c, dir := start(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown(path, 1234, 4321), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	info, err := write(t, c, &agentv1.WriteHeader{Path: link}, true, "new")
	if err != nil {
		t.Fatal(err)
	}
	if info.Uid != 1234 || info.Gid != 4321 || info.Mode != 0o640 || info.Path != path {
		t.Fatalf("info %v", info)
	}
	if got, _ := os.ReadFile(path); string(got) != "new" {
		t.Fatalf("the file has %q", got)
	}
	if mustStat(t, link).Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Fatal("the link was replaced")
	}
}

func TestFilesOfAUserBelongToTheUser(t *testing.T) {
	c, dir := start(t)
	home := filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Chown(home, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, "a", "f")
	if _, err := write(t, c, &agentv1.WriteHeader{Path: path, User: nobody, MakeParents: true}, true, "x"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		if st := mustStat(t, p); st.Uid != 65534 || st.Gid != 65534 {
			t.Fatalf("%s belongs to %d:%d", p, st.Uid, st.Gid)
		}
	}
	// The thread that acted as the user is root again.
	if _, err := write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, "root")}, true, "x"); err != nil {
		t.Fatal(err)
	}
}

func TestUserHasOnlyTheUsersRights(t *testing.T) {
	c, dir := start(t)
	secret := filepath.Join(dir, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("s"), 0o600), os.Mkdir(filepath.Join(dir, "closed"), 0o700)); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	denied := func(err error) {
		t.Helper()
		if connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("error %v, want permission denied", err)
		}
	}
	_, _, err := read(t, c, &agentv1.ReadRequest{Path: secret, User: nobody})
	denied(err)
	_, err = write(t, c, &agentv1.WriteHeader{Path: secret, User: nobody}, true, "x")
	denied(err)
	_, err = write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, "new"), User: nobody}, true, "x")
	denied(err)
	_, err = c.Stat(ctx, &agentv1.StatRequest{Path: filepath.Join(dir, "closed", "x"), User: nobody})
	denied(err)
	_, err = c.Mkdir(ctx, &agentv1.MkdirRequest{Path: filepath.Join(dir, "d"), User: nobody})
	denied(err)
	_, err = c.Remove(ctx, &agentv1.RemoveRequest{Path: secret, User: nobody})
	denied(err)
	mode := uint32(0o777)
	_, err = c.SetAttributes(ctx, &agentv1.SetAttributesRequest{Path: secret, User: nobody, Mode: &mode})
	denied(err)
	_, err = c.Move(ctx, &agentv1.MoveRequest{From: secret, To: filepath.Join(dir, "moved"), User: nobody})
	denied(err)
	list, err := c.List(ctx, &agentv1.ListFilesRequest{Path: filepath.Join(dir, "closed"), User: nobody})
	if err != nil {
		t.Fatal(err)
	}
	for list.Receive() {
		t.Errorf("listed %v", list.Msg())
	}
	denied(list.Err())
	list.Close()
	if got, _ := os.ReadFile(secret); string(got) != "s" {
		t.Fatalf("the file has %q", got)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	c, dir := start(t)
	ctx := t.Context()
	file := filepath.Join(dir, "f")
	full := filepath.Join(dir, "full")
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.MkdirAll(filepath.Join(full, "x"), 0o755), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644)); err != nil {
		t.Fatal(err)
	}
	_, _, err := read(t, c, &agentv1.ReadRequest{Path: filepath.Join(dir, "none")})
	wantErrno(t, err, connect.CodeNotFound, "ENOENT")
	_, _, err = read(t, c, &agentv1.ReadRequest{Path: dir})
	wantErrno(t, err, connect.CodeFailedPrecondition, "EISDIR")
	_, _, err = read(t, c, &agentv1.ReadRequest{Path: filepath.Join(dir, "fifo")})
	wantErrno(t, err, connect.CodeFailedPrecondition, "")
	_, _, err = read(t, c, &agentv1.ReadRequest{Path: file + "/x"})
	wantErrno(t, err, connect.CodeFailedPrecondition, "ENOTDIR")
	_, err = write(t, c, &agentv1.WriteHeader{Path: dir}, true, "x")
	wantErrno(t, err, connect.CodeFailedPrecondition, "EISDIR")
	_, err = write(t, c, &agentv1.WriteHeader{Path: "/dev/null"}, true, "x")
	wantErrno(t, err, connect.CodeFailedPrecondition, "")
	_, err = write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, "no", "dir")}, true, "x")
	wantErrno(t, err, connect.CodeNotFound, "ENOENT")
	_, err = write(t, c, &agentv1.WriteHeader{Path: filepath.Join(dir, strings.Repeat("n", 300))}, true, "x")
	wantErrno(t, err, connect.CodeInvalidArgument, "ENAMETOOLONG")
	_, err = c.Mkdir(ctx, &agentv1.MkdirRequest{Path: full})
	wantErrno(t, err, connect.CodeAlreadyExists, "EEXIST")
	_, err = c.Remove(ctx, &agentv1.RemoveRequest{Path: full})
	wantErrno(t, err, connect.CodeFailedPrecondition, "ENOTEMPTY")
	_, err = c.Remove(ctx, &agentv1.RemoveRequest{Path: filepath.Join(dir, "none"), Recursive: true})
	wantErrno(t, err, connect.CodeNotFound, "ENOENT")
	_, err = c.Remove(ctx, &agentv1.RemoveRequest{Path: "/", Recursive: true})
	wantErrno(t, err, connect.CodeFailedPrecondition, "EBUSY")
	_, err = c.Move(ctx, &agentv1.MoveRequest{From: file, To: full})
	wantErrno(t, err, connect.CodeAlreadyExists, "EEXIST")
	for _, path := range []string{"", "a\x00b"} {
		_, err = c.Stat(ctx, &agentv1.StatRequest{Path: path})
		wantErrno(t, err, connect.CodeInvalidArgument, "")
	}
	_, err = c.Stat(ctx, &agentv1.StatRequest{Path: "/", User: "no-such-user"})
	wantErrno(t, err, connect.CodeInvalidArgument, "")
}

func TestDiskFull(t *testing.T) {
	c, dir := start(t)
	small := filepath.Join(dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small filesystem: %v", err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH)
	_, err := write(t, c, &agentv1.WriteHeader{Path: filepath.Join(small, "f")}, true, strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20))
	wantErrno(t, err, connect.CodeResourceExhausted, "ENOSPC")
	noTemporaryFiles(t, small)
	if _, err := os.Stat(filepath.Join(small, "f")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a file is there: %v", err)
	}
}

func TestListDepthAndLinks(t *testing.T) {
	c, dir := start(t)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755),
		os.WriteFile(filepath.Join(dir, "a", "f"), []byte("12"), 0o640),
		os.Symlink("..", filepath.Join(dir, "a", "up")),
	); err != nil {
		t.Fatal(err)
	}
	for range 700 { // more than one batch
		f, err := os.CreateTemp(filepath.Join(dir, "a", "b"), "n")
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	list := func(depth uint32) (paths []string) {
		s, err := c.List(t.Context(), &agentv1.ListFilesRequest{Path: dir, Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for s.Receive() {
			if s.Msg().Type == "symlink" && s.Msg().LinkTarget != ".." {
				t.Errorf("link %v", s.Msg())
			}
			paths = append(paths, strings.TrimPrefix(s.Msg().Path, dir))
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		sort.Strings(paths)
		return paths
	}
	if got := list(0); strings.Join(got, " ") != "/a" {
		t.Errorf("depth 0: %v", got)
	}
	if got := list(2); strings.Join(got, " ") != "/a /a/b /a/f /a/up" {
		t.Errorf("depth 2: %v", got)
	}
	if got := list(10); len(got) != 4+1+700 {
		t.Errorf("depth 10: %d entries", len(got))
	}
}

func TestMoveMkdirRemoveAttributes(t *testing.T) {
	c, dir := start(t)
	ctx := context.Background()
	d := filepath.Join(dir, "x", "y")
	info, err := c.Mkdir(ctx, &agentv1.MkdirRequest{Path: d, Parents: true, Mode: 0o1777})
	if err != nil || info.Mode != 0o1777 || info.Type != "directory" {
		t.Fatalf("%v, %v", info, err)
	}
	if _, err := c.Mkdir(ctx, &agentv1.MkdirRequest{Path: d, Parents: true}); err != nil {
		t.Fatalf("an existing directory: %v", err)
	}
	moved := filepath.Join(dir, "z")
	if info, err := c.Move(ctx, &agentv1.MoveRequest{From: d, To: moved}); err != nil || info.Path != moved {
		t.Fatalf("%v, %v", info, err)
	}
	mode := uint32(0o2711)
	info, err = c.SetAttributes(ctx, &agentv1.SetAttributesRequest{Path: moved, Mode: &mode, Owner: nobody, Group: "4242"})
	if err != nil || info.Mode != 0o2711 || info.Uid != 65534 || info.Gid != 4242 {
		t.Fatalf("%v, %v", info, err)
	}
	if _, err := c.Remove(ctx, &agentv1.RemoveRequest{Path: filepath.Join(dir, "x"), Recursive: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("still there")
	}
}

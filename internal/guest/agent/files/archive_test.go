package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func archive(t *testing.T, c client, path, user string) ([]byte, error) {
	t.Helper()
	s, err := c.Archive(t.Context(), &agentv1.ArchiveRequest{Path: path, User: user})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out bytes.Buffer
	for s.Receive() {
		out.Write(s.Msg().Data)
	}
	return out.Bytes(), s.Err()
}

func extract(t *testing.T, c client, path, user string, data []byte) (*agentv1.ExtractResponse, error) {
	t.Helper()
	s, err := c.Extract(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sendErr := s.Send(&agentv1.ExtractRequest{Path: path, User: user})
	for len(data) > 0 && sendErr == nil {
		n := min(len(data), 1000)
		sendErr = s.Send(&agentv1.ExtractRequest{Data: data[:n]})
		data = data[n:]
	}
	return s.CloseAndReceive()
}

func TestArchiveRoundTrip(t *testing.T) {
	c, dir := start(t)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to", "deep")
	old := time.Unix(1_500_000_000, 0)
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(from, "sub"), 0o755),
		os.WriteFile(filepath.Join(from, "sub", "big"), big, 0o600),
		unix.Chmod(filepath.Join(from, "sub", "big"), 0o4751),
		os.Link(filepath.Join(from, "sub", "big"), filepath.Join(from, "hard")),
		os.Symlink("/etc/passwd", filepath.Join(from, "outside")),
		os.Symlink("nothing", filepath.Join(from, "dangling")),
		os.Mkdir(filepath.Join(from, "readonly"), 0o755),
		os.WriteFile(filepath.Join(from, "readonly", "f"), nil, 0o444),
		os.Chmod(filepath.Join(from, "readonly"), 0o555),
		os.Lchown(filepath.Join(from, "readonly"), 1234, 4321),
		os.Chtimes(filepath.Join(from, "sub", "big"), old, old),
		os.Chtimes(filepath.Join(from, "sub"), old, old),
	); err != nil {
		t.Fatal(err)
	}
	data, err := archive(t, c, from, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over what is there
		if _, err := extract(t, c, to, "", data); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(to, "sub", "big"))
	if err != nil || !bytes.Equal(got, big) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	st := mustStat(t, filepath.Join(to, "sub", "big"))
	if st.Mode&modeBits != 0o4751 || st.Mtim.Sec != old.Unix() || st.Nlink != 2 {
		t.Errorf("mode %o, time %d, %d links", st.Mode&modeBits, st.Mtim.Sec, st.Nlink)
	}
	if d := mustStat(t, filepath.Join(to, "sub")); d.Mtim.Sec != old.Unix() {
		t.Errorf("directory time %d", d.Mtim.Sec)
	}
	if d := mustStat(t, filepath.Join(to, "readonly")); d.Mode&modeBits != 0o555 || d.Uid != 1234 || d.Gid != 4321 {
		t.Errorf("directory %o of %d:%d", d.Mode&modeBits, d.Uid, d.Gid)
	}
	if mustStat(t, filepath.Join(to, "hard")).Ino != st.Ino {
		t.Error("the hard link became a copy")
	}
	if target, err := os.Readlink(filepath.Join(to, "outside")); err != nil || target != "/etc/passwd" {
		t.Errorf("link to %q, %v", target, err)
	}
}

func TestArchiveOfOneFile(t *testing.T) {
	c, dir := start(t)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("abc"), 0o644); err != nil {
		t.Fatal(err)
	}
	data, err := archive(t, c, filepath.Join(dir, "f"), "")
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(bytes.NewReader(data))
	h, err := r.Next()
	if err != nil || h.Name != "f" || h.Size != 3 {
		t.Fatalf("%v, %v", h, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("more: %v", err)
	}
	_, err = archive(t, c, filepath.Join(dir, "none"), "")
	wantErrno(t, err, connect.CodeNotFound, "ENOENT")
}

func TestArchiveWhileFilesComeAndGo(t *testing.T) {
	c, dir := start(t)
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			sub := filepath.Join(dir, fmt.Sprintf("d%d", n%8))
			_ = os.Mkdir(sub, 0o755)
			f, g := filepath.Join(sub, "f"), filepath.Join(sub, "g")
			_ = os.WriteFile(f, []byte("abc"), 0o644)
			_ = os.Link(f, g)
			_ = os.RemoveAll(sub)
		}
	}()
	for range 100 {
		if _, err := archive(t, c, dir, ""); err != nil {
			t.Errorf("an archive of a changing directory: %v", err)
			break
		}
	}
	close(stop)
	<-gone
}

func makeTar(t *testing.T, entries ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExtractStaysInside(t *testing.T) {
	c, dir := start(t)
	outside := filepath.Join(dir, "outside")
	if err := os.Mkdir(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	link := func(name, target string) *tar.Header {
		return &tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
	}
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Size: 1, Mode: 0o644, Typeflag: tar.TypeReg}
	}
	for name, entries := range map[string][]*tar.Header{
		"dots":          {file("../outside/f")},
		"hidden dots":   {file("a/../../outside/f")},
		"absolute link": {link("l", outside), file("l/f")},
		"relative link": {link("l", "../outside"), file("l/f")},
		"link chain":    {link("a", "."), link("a/b", ".."), file("b/outside/f")},
		"directory":     {link("l", outside), {Name: "l/d/", Mode: 0o755, Typeflag: tar.TypeDir}},
		"hard link":     {{Name: "h", Linkname: "../outside/secret", Typeflag: tar.TypeLink}},
		"through link":  {link("l", outside), {Name: "h", Linkname: "l/secret", Typeflag: tar.TypeLink}},
		"device":        {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := extract(t, c, filepath.Join(dir, "in-"+name), "", makeTar(t, entries...)); err == nil {
				t.Error("accepted")
			}
			left, err := os.ReadDir(outside)
			if err != nil || len(left) != 1 {
				t.Fatalf("outside: %v, %v", left, err)
			}
			if st := mustStat(t, filepath.Join(outside, "secret")); st.Nlink != 1 {
				t.Fatal("the secret has another name")
			}
		})
	}
	// A leading slash is dropped, as tar programs do.
	in := filepath.Join(dir, "in")
	if _, err := extract(t, c, in, "", makeTar(t, file("/abs"))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(in, "abs")); err != nil {
		t.Fatal(err)
	}
}

func TestExtractAsUser(t *testing.T) {
	c, dir := start(t)
	home := filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o755), os.Chown(home, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	data := makeTar(t,
		&tar.Header{Name: "d/", Mode: 0o755, Uid: 0, Typeflag: tar.TypeDir},
		&tar.Header{Name: "d/f", Size: 2, Mode: 0o6755, Uid: 0, Typeflag: tar.TypeReg},
		&tar.Header{Name: "l", Linkname: "d/f", Typeflag: tar.TypeSymlink})
	r, err := extract(t, c, filepath.Join(home, "x"), nobody, data)
	if err != nil || r.Files != 3 || r.Bytes != 2 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, name := range []string{"", "d", "d/f", "l"} {
		if st := mustStat(t, filepath.Join(home, "x", name)); st.Uid != 65534 {
			t.Errorf("%q belongs to %d", name, st.Uid)
		}
	}
	if st := mustStat(t, filepath.Join(home, "x", "d", "f")); st.Mode&modeBits != 0o755 {
		t.Errorf("mode %o", st.Mode&modeBits)
	}
	_, err = extract(t, c, filepath.Join(dir, "not-theirs"), nobody, data)
	wantErrno(t, err, connect.CodePermissionDenied, "EACCES")
}

func TestExtractOfABrokenArchive(t *testing.T) {
	c, dir := start(t)
	good := makeTar(t, &tar.Header{Name: "f", Size: 5000, Mode: 0o644, Typeflag: tar.TypeReg})
	for name, data := range map[string][]byte{
		"garbage":   bytes.Repeat([]byte("garbage!"), 1000),
		"truncated": good[:3000],
	} {
		if _, err := extract(t, c, filepath.Join(dir, name), "", data); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, name, "f")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: half a file is there", name)
		}
	}
}

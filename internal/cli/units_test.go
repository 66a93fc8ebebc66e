package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/progress"
)

func TestParseEnd(t *testing.T) {
	for arg, want := range map[string]copyEnd{
		"a.txt":       {path: "a.txt"},
		"./a:b":       {path: "./a:b"},
		"/a:b":        {path: "/a:b"},
		"-":           {path: "-"},
		"dir/a:b":     {path: "dir/a:b"},
		"11:/root":    {sandbox: "11", path: "/root"},
		"sbx_1:a":     {sandbox: "sbx_1", path: "a"},
		"11:":         {sandbox: "11", path: "."},
		"11:/a:b":     {sandbox: "11", path: "/a:b"},
		":/root":      {path: ":/root"},
		"sbx_1:../up": {sandbox: "sbx_1", path: "../up"},
	} {
		got, err := parseEnd(arg)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", arg, got, err, want)
		}
	}
	if _, err := parseEnd(""); err == nil {
		t.Error("an empty path is accepted")
	}
}

func TestLocalName(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a", "./a/b": "a/b", "a/../b": "b", "./": ".", ".": ".",
		"../a": "", "/etc/passwd": "", "a/../../b": "", "..": "", "a\x00b": "",
	} {
		got, err := localName(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestExitCodeIsNeverAFalseSuccess(t *testing.T) {
	for _, c := range []struct {
		o    outcome
		want int
	}{
		{outcome{code: 0}, 0},
		{outcome{code: 7}, 7},
		{outcome{code: 255}, 255},
		{outcome{code: 256}, 1},
		{outcome{code: -1}, 255},
		{outcome{code: 512}, 1},
		{outcome{code: 259}, 3},
		{outcome{code: 130, reason: "timeout"}, 124},
		{outcome{code: 0, reason: "timeout"}, 124},
		{outcome{code: 137, reason: "signaled"}, 137},
	} {
		if got := c.o.exitCode(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.o, got, c.want)
		}
	}
}

func TestClean(t *testing.T) {
	if got, want := clean("a\x1b[31mb\nc\u202ed é"), "a\uFFFD[31mb c\uFFFDd é"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAge(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 90 * time.Minute: "1h30m", 50 * time.Hour: "2d2h",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// entry is a file of a test's tar.
type entry struct {
	name, link, content string
	kind                byte
	mode                int64
	size                int64 // when it lies
}

func makeTar(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.content)), ModTime: time.Unix(1_700_000_000, 0)}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if e.size != 0 {
			h.Size = e.size
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(tw, e.content)
	}
	if err := tw.Flush(); err != nil && !strings.Contains(err.Error(), "missed writing") {
		t.Fatal(err)
	}
	tw.Close() // fails for an entry that lies about its size, which is meant
	return b.Bytes()
}

func TestUnpackKeepsModesTimesAndLinks(t *testing.T) {
	dir := t.TempDir()
	raw := makeTar(t,
		entry{name: "./", kind: tar.TypeDir, mode: 0o755},
		entry{name: "ro/", kind: tar.TypeDir, mode: 0o555},
		entry{name: "ro/run", content: "#!", mode: 0o4755},
		entry{name: "hard", kind: tar.TypeLink, link: "ro/run"},
		entry{name: "soft", kind: tar.TypeSymlink, link: "/usr/bin/python3"},
		entry{name: "fifo", kind: tar.TypeFifo},
		entry{name: "no/parent", content: "x", mode: 0o600},
	)
	var warned []string
	target := filepath.Join(dir, "out")
	err := unpackDir(bytes.NewReader(raw), target, func(f string, a ...any) { warned = append(warned, f) })
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(target, "ro/run"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != 0o755 { // and no setuid
		t.Errorf("mode %v", st.Mode())
	}
	if !st.ModTime().Equal(time.Unix(1_700_000_000, 0)) {
		t.Errorf("time %v", st.ModTime())
	}
	hard, err := os.Stat(filepath.Join(target, "hard"))
	if err != nil || !os.SameFile(st, hard) {
		t.Errorf("the hard link is not one: %v", err)
	}
	if link, err := os.Readlink(filepath.Join(target, "soft")); err != nil || link != "/usr/bin/python3" {
		t.Errorf("link %q, %v", link, err)
	}
	if d, err := os.Stat(filepath.Join(target, "ro")); err != nil || d.Mode().Perm() != 0o555 {
		t.Errorf("directory mode %v, %v", d, err)
	}
	if len(warned) != 1 {
		t.Errorf("warnings: %q", warned)
	}
	if _, err := os.Lstat(filepath.Join(target, "fifo")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pipe was made: %v", err)
	}
	// Again, merged into what is there: hard links and links are replaced.
	if err := unpackDir(bytes.NewReader(raw), target, func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(target, ".ramet-*"))
	if err != nil || left != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	for name, entries := range map[string][]entry{
		"parent":               {{name: "../evil", content: "x", mode: 0o644}},
		"absolute":             {{name: "/evil", content: "x", mode: 0o644}},
		"parent directory":     {{name: "../evil/", kind: tar.TypeDir, mode: 0o755}},
		"hard link out":        {{name: "a", kind: tar.TypeLink, link: "../secret"}},
		"absolute hard link":   {{name: "a", kind: tar.TypeLink, link: "/etc/passwd"}},
		"through a link":       {{name: "a", kind: tar.TypeSymlink, link: ".."}, {name: "a/evil", content: "x", mode: 0o644}},
		"link to a link":       {{name: "a", kind: tar.TypeSymlink, link: "../secret"}, {name: "b", kind: tar.TypeLink, link: "a"}, {name: "b/x", content: "x"}},
		"larger than any disk": {{name: "a", size: 1 << 40}},
		"file for the root":    {{name: ".", content: "x"}},
		"nothing":              {},
	} {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "target")
			secret := filepath.Join(outer, "secret")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(secret, []byte("secret"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := unpackDir(bytes.NewReader(makeTar(t, entries...)), dir, func(string, ...any) {}); err == nil {
				t.Error("accepted")
			}
			checkOutside(t, outer)
		})
	}
}

// checkOutside fails if anything but "secret", unchanged, is beside "target".
func checkOutside(t *testing.T, outer string) {
	t.Helper()
	list, err := os.ReadDir(outer)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name() != "target" && e.Name() != "secret" {
			t.Fatalf("%s was written outside", e.Name())
		}
	}
	if b, err := os.ReadFile(filepath.Join(outer, "secret")); err != nil || string(b) != "secret" {
		t.Fatalf("the secret is %q, %v", b, err)
	}
}

// FuzzUnpack unpacks any bytes and looks for traces outside of the target.
func FuzzUnpack(f *testing.F) {
	f.Add(makeTar(f, entry{name: "../evil", content: "x"}))
	f.Add(makeTar(f, entry{name: "a", kind: tar.TypeSymlink, link: "../secret"}, entry{name: "a", content: "x", mode: 0o600}))
	f.Add(makeTar(f, entry{name: "d/", kind: tar.TypeDir, mode: 0}, entry{name: "d/x", content: "x"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<16 {
			return
		}
		// A small archive may claim gigabytes of zeros; that they are bounded
		// is another test's matter, and this one must not write them.
		tr := tar.NewReader(bytes.NewReader(raw))
		for {
			h, err := tr.Next()
			if err != nil {
				break
			}
			if h.Size > 1<<20 {
				return
			}
		}
		outer := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(outer, "target"), 0o755),
			os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o600)); err != nil {
			t.Fatal(err)
		}
		unpackDir(bytes.NewReader(raw), filepath.Join(outer, "target"), func(string, ...any) {})
		checkOutside(t, outer)
	})
}

func TestPackRoundTrip(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	if err := errors.Join(os.MkdirAll(filepath.Join(src, "sub/empty"), 0o755),
		os.WriteFile(filepath.Join(src, "sub/a"), bytes.Repeat([]byte("x"), 100_000), 0o640),
		os.Symlink("sub/a", filepath.Join(src, "link"))); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := packDir(&b, src, true, t.Logf); err != nil {
		t.Fatal(err)
	}
	if err := unpackDir(&b, filepath.Join(dir, "dst"), t.Logf); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "dst/link"))
	if err != nil || len(got) != 100_000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if st, err := os.Stat(filepath.Join(dir, "dst/sub/empty")); err != nil || !st.IsDir() {
		t.Errorf("the empty directory is lost: %v", err)
	}
}

func TestCancelReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	in, err := newCancelReader(r)
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	if _, err := w.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if n, err := in.Read(b); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	got := make(chan error)
	go func() {
		_, err := in.Read(b) // nothing comes
		got <- err
	}()
	in.cancel()
	if err := <-got; !errors.Is(err, os.ErrClosed) {
		t.Errorf("a cancelled read: %v", err)
	}
}

func TestDrawerPlain(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	d := &drawer{w: &b, now: func() time.Time { return now }, quit: make(chan struct{})}
	d.Event(progress.Event{Step: "quick"})
	d.Event(progress.Event{Step: "quick", Done: true})
	d.Event(progress.Event{Step: "build"})
	d.refresh()
	now = now.Add(time.Second)
	d.refresh()
	now = now.Add(15 * time.Second)
	d.Event(progress.Event{Step: "build", Detail: "Unpacking\x1b[2J bash", Fraction: 0.5})
	d.refresh()
	d.refresh()
	now = now.Add(4 * time.Second)
	d.Event(progress.Event{Step: "build", Done: true})
	d.Close()
	d.Event(progress.Event{Step: "late"})
	want := "build ...\nbuild: still at it after 16.0s  50 %  Unpacking\uFFFD[2J bash\nbuild: done in 20.0s\n"
	if b.String() != want {
		t.Errorf("%q\nwant\n%q", b.String(), want)
	}
}

func TestDrawerLiveLeavesOnlyWhatIsDone(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	d := &drawer{w: &b, file: os.Stdin, live: true, now: func() time.Time { return now }, quit: make(chan struct{})}
	d.Event(progress.Event{Step: "one"})
	d.Event(progress.Event{Step: "two", Detail: strings.Repeat("long ", 100)})
	now = now.Add(2 * time.Second)
	d.Event(progress.Event{Step: "one", Done: true})
	d.Event(progress.Event{Step: "quick"})
	d.Event(progress.Event{Step: "quick", Done: true})
	d.Close()
	if got, want := screen(b.String()), "✓ one 2.0s\n"; got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
}

// screen returns what a terminal shows after s, which uses "up N" and "clear to
// the end" only.
func screen(s string) string {
	lines := []string{""}
	for s != "" {
		if rest, found := strings.CutPrefix(s, "\x1b["); found {
			n := 0
			for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
				n++
			}
			up := 0
			for _, c := range rest[:n] {
				up = up*10 + int(c-'0')
			}
			if rest[n] == 'A' {
				lines = lines[:len(lines)-up]
				lines[len(lines)-1] = ""
			}
			s = rest[n+1:]
			continue
		}
		if s[0] == '\n' {
			lines = append(lines, "")
		} else if s[0] != '\r' {
			lines[len(lines)-1] += s[:1]
		}
		s = s[1:]
	}
	return strings.Join(lines, "\n")
}

// TestMergeKeepsTheDirectoryItself copies what a directory holds into one that
// is there: a copy into /tmp must not change the mode of /tmp.
func TestMergeKeepsTheDirectoryItself(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(src, 0o700), os.Chmod(dst, 0o755|os.ModeSticky), os.WriteFile(filepath.Join(src, "a"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if err := packDir(&whole, src, true, t.Logf); err != nil {
		t.Fatal(err)
	}
	if err := unpackDir(&whole, dst, t.Logf); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dst); err != nil || st.Mode() != os.ModeDir|os.ModeSticky|0o755 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	var contents bytes.Buffer
	if err := packDir(&contents, src, false, t.Logf); err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(&contents)
	for h, err := tr.Next(); !errors.Is(err, io.EOF); h, err = tr.Next() {
		if err != nil || h.Name != "a" {
			t.Errorf("entry %+v, %v", h, err)
		}
	}
}

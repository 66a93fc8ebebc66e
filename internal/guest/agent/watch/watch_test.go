package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// seen collects what a watcher tells.
type seen struct {
	t      *testing.T
	dir    string
	events chan Event
	failed chan error
	marks  int
}

func watch(t *testing.T, o Options) *seen {
	t.Helper()
	return watchIn(t, t.TempDir(), o)
}

func watchIn(t *testing.T, dir string, o Options) *seen {
	t.Helper()
	w, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &seen{t: t, dir: dir, events: make(chan Event, 100000), failed: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		s.failed <- w.Run(ctx, func(e Event) error {
			s.events <- e
			return nil
		})
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// until does what it is given and returns what is told of it, in short form. A file that is
// made afterwards marks the end.
func (s *seen) until(do func()) []string {
	s.t.Helper()
	do()
	s.marks++
	mark := fmt.Sprintf("mark%d", s.marks)
	s.write(mark)
	var out []string
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-s.events:
			if e.Path == mark && e.Type == Create {
				return out
			}
			if !strings.HasPrefix(e.Path, "mark") {
				out = append(out, short(e))
			}
		case err := <-s.failed:
			s.t.Fatal(err)
		case <-deadline:
			s.t.Fatalf("the end was not told; %q were", out)
		}
	}
}

func short(e Event) string {
	if e.Overflow {
		return "overflow"
	}
	return e.Type + " " + e.Path
}

func (s *seen) path(name string) string { return filepath.Join(s.dir, name) }

func (s *seen) write(name string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte("x"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seen) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *seen) expect(got []string, want ...string) {
	s.t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		s.t.Errorf("got  %q\nwant %q", got, want)
	}
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

func TestChanges(t *testing.T) {
	s := watch(t, Options{})
	s.expect(s.until(func() { s.write("a") }), "create a", "write a")
	s.expect(s.until(func() { s.must(os.Chmod(s.path("a"), 0o644)) }), "chmod a")
	s.expect(s.until(func() { s.must(os.Rename(s.path("a"), s.path("b"))) }), "rename a", "create b")
	s.expect(s.until(func() { s.must(os.Remove(s.path("b"))) }), "remove b")
	s.expect(s.until(func() {
		s.must(os.Mkdir(s.path("d"), 0o755))
		s.write("d/below")
	}), "create d") // not recursive
	s.expect(s.until(func() { s.must(os.Symlink("nowhere", s.path("l"))) }), "create l")
}

// TestDirectoryMadeAfterTheWatchStarted: what is made in it at once, before anybody can watch
// it, is told all the same, and nothing twice.
func TestDirectoryMadeAfterTheWatchStarted(t *testing.T) {
	s := watch(t, Options{Recursive: true})
	for i := range 200 {
		deep := fmt.Sprintf("n%d/o/p", i)
		got := s.until(func() {
			s.must(os.MkdirAll(s.path(deep), 0o755))
			s.write(deep + "/f")
			s.write(fmt.Sprintf("n%d/g", i))
		})
		for _, name := range []string{fmt.Sprintf("n%d", i), fmt.Sprintf("n%d/o", i), deep, deep + "/f", fmt.Sprintf("n%d/g", i)} {
			if n := count(got, "create "+name); n != 1 {
				t.Fatalf("%s was told %d times: %q", name, n, got)
			}
		}
	}
	// Truncated, and written: the kernel may make one of both.
	if got := s.until(func() { s.write("n7/o/p/f") }); count(got, "write n7/o/p/f") == 0 || count(got, "write n7/o/p/f") != len(got) {
		t.Errorf("%q", got)
	}
	// A name that a scan has told is news again after it was removed.
	s.expect(s.until(func() {
		s.must(os.Remove(s.path("n7/o/p/f")))
		s.write("n7/o/p/f")
	}), "remove n7/o/p/f", "create n7/o/p/f", "write n7/o/p/f")
}

func TestDirectoriesThatWereThere(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := watchIn(t, dir, Options{Recursive: true})
	s.expect(s.until(func() { s.write("a/b/c/f") }), "create a/b/c/f", "write a/b/c/f")
	s.expect(s.until(func() { s.must(os.RemoveAll(s.path("a"))) }),
		"remove a/b/c/f", "remove a/b/c", "remove a/b", "remove a")
	s.expect(s.until(func() {
		s.must(os.Mkdir(s.path("a"), 0o755))
		s.write("a/f")
	})[:2], "create a", "create a/f")
}

func TestMovedDirectories(t *testing.T) {
	s := watch(t, Options{Recursive: true})
	elsewhere := t.TempDir()
	s.must(os.MkdirAll(filepath.Join(elsewhere, "in/sub"), 0o755))
	s.must(os.WriteFile(filepath.Join(elsewhere, "in/sub/f"), nil, 0o600))
	// From outside: all that is in it is news.
	s.expect(s.until(func() { s.must(os.Rename(filepath.Join(elsewhere, "in"), s.path("in"))) }),
		"create in", "create in/sub", "create in/sub/f")
	s.expect(s.until(func() { s.write("in/sub/g") }), "create in/sub/g", "write in/sub/g")
	// Within: it goes on under its new name.
	got := s.until(func() { s.must(os.Rename(s.path("in"), s.path("there"))) })
	if len(got) < 2 || got[0] != "rename in" || got[1] != "create there" {
		t.Fatalf("%q", got)
	}
	s.expect(s.until(func() { s.write("there/sub/h") }), "create there/sub/h", "write there/sub/h")
	// Out: it is not watched any more.
	s.expect(s.until(func() { s.must(os.Rename(s.path("there"), filepath.Join(elsewhere, "out"))) }), "rename there")
	s.expect(s.until(func() { s.must(os.WriteFile(filepath.Join(elsewhere, "out/sub/i"), nil, 0o600)) }))
}

// TestOverflow: more changes than the kernel keeps are told as lost, and the watch goes on,
// also in directories that came meanwhile.
func TestOverflow(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(dir, Options{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := &seen{t: t, dir: dir}
	for i := range 20000 { // twice as many events; the kernel keeps 16384
		name := s.path(fmt.Sprintf("f%d", i))
		s.must(os.WriteFile(name, nil, 0o600))
		s.must(os.Remove(name))
	}
	s.must(os.Mkdir(s.path("late"), 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	lost, again := false, false
	done := errors.New("done")
	err = w.Run(ctx, func(e Event) error {
		switch {
		case e.Overflow:
			lost = true
			s.write("late/f")
		case lost && e.Path == "late/f" && e.Type == Create:
			again = true
			return done
		}
		return nil
	})
	if !errors.Is(err, done) || !lost || !again {
		t.Fatalf("%v, overflow %v, went on %v", err, lost, again)
	}
}

func TestWatchedDirectoryGoes(t *testing.T) {
	for what, end := range map[string]func(dir string) error{
		"remove .": os.Remove,
		"rename .": func(dir string) error { return os.Rename(dir, dir+".moved") },
	} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		w, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := end(dir); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var got []string
		err = w.Run(ctx, func(e Event) error {
			got = append(got, short(e))
			return nil
		})
		if !errors.Is(err, ErrGone) || strings.Join(got, " ") != what {
			t.Errorf("%q, %v; want %q", got, err, what)
		}
	}
}

func TestWhatCannotBeWatched(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{file: unix.ENOTDIR, filepath.Join(dir, "none"): unix.ENOENT} {
		if _, err := Open(path, Options{}); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestTooManyDirectories(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir, Options{Recursive: true, Limit: 10}); !errors.Is(err, ErrTooMany) {
		t.Fatal(err)
	}
	w, err := Open(dir, Options{Recursive: true, Limit: 11})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.Mkdir(filepath.Join(dir, "more"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := w.Run(ctx, func(Event) error { return nil }); !errors.Is(err, ErrTooMany) {
		t.Fatal(err)
	}
}

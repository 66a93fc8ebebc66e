package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

// startAll starts n machines at once.
func (b *bench) startAll(n int) {
	b.t.Helper()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := b.Start(b.ctx(), b.request()); err != nil {
				b.t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestGoldenIsMadeOnce(t *testing.T) {
	b := newBench(t, nil)
	b.startAll(8)
	// One that looked before it was made, and gets its turn after.
	m, err := b.joinMaking(b.ctx(), b.template, kindFor(sandbox.DefaultShape()), b.goldenDir(b.template, sandbox.DefaultShape()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if <-m.done; m.err != nil {
		t.Error(m.err)
	}
	if n := b.driver.coldStarts(); n != 1 {
		t.Errorf("%d golden snapshots were made", n)
	}
	r := b.request()
	r.Shape.VCPUs = 4
	if _, err := b.Start(b.ctx(), r); err != nil {
		t.Error(err)
	}
	if n := b.driver.coldStarts(); n != 2 {
		t.Errorf("%d golden snapshots were made for two vCPU counts", n)
	}
}

// TestBadGoldenIsMadeAnew has many creates that find out at once: one of them
// makes the snapshot anew, and none throws away the new one.
func TestBadGoldenIsMadeAnew(t *testing.T) {
	for name, damage := range map[string]func(file string) error{
		"damaged": func(file string) error {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			b[0] ^= 1
			return os.WriteFile(file, b, 0o600)
		},
		"incomplete": os.Remove,
		"of another host": func(file string) error {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			return os.WriteFile(file, []byte(strings.Replace(string(b), `"image"`, `"other"`, 1)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			dir, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape())
			if err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(files) != 1 {
				t.Fatalf("the snapshot has %v, %v", files, err)
			}
			if err := damage(files[0]); err != nil {
				t.Fatal(err)
			}
			b.startAll(8)
			if n := b.driver.coldStarts(); n != 2 {
				t.Errorf("the golden snapshot was made %d times, want once more than before", n)
			}
			if left, err := filepath.Glob(dir + ".*"); err != nil || len(left) != 0 {
				t.Errorf("left beside the snapshot: %v, %v", left, err)
			}
		})
	}
}

// TestGoldenGoesOnWithoutItsCallers has a create whose caller goes away while the
// snapshot is made: the next one finds it.
func TestGoldenGoesOnWithoutItsCallers(t *testing.T) {
	b := newBench(t, nil)
	entered, release := b.blockRuns()
	ctx, cancel := context.WithCancel(b.ctx())
	failed := make(chan error, 1)
	go func() { _, err := b.Start(ctx, b.request()); failed <- err }()
	<-entered
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the abandoned create: %v", err)
	}
	release()
	b.mustStart()
	if n := b.driver.coldStarts(); n != 1 {
		t.Errorf("%d golden snapshots were made", n)
	}
}

// TestGoldenOfARemovedTemplate must not bring the template's directory back.
func TestGoldenOfARemovedTemplate(t *testing.T) {
	b := newBench(t, nil)
	entered, release := b.blockRuns()
	failed := make(chan error, 1)
	go func() { _, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape()); failed <- err }()
	<-entered
	if err := os.RemoveAll(b.template.Dir); err != nil {
		t.Fatal(err)
	}
	release()
	if e := userError(t, <-failed); e.Kind != sandbox.Conflict || e.Code != "template_removed" {
		t.Errorf("the user is told %v %s %q", e.Kind, e.Code, e.Message)
	}
	if _, err := os.Stat(b.template.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the template is back: %v", err)
	}
	b.nothingLeft()
}

// TestCloseWhileAGoldenIsMade leaves no machine behind, though nobody waits for it any more.
func TestCloseWhileAGoldenIsMade(t *testing.T) {
	b := newBench(t, nil)
	entered, release := b.blockRuns()
	defer release()
	ctx, cancel := context.WithCancel(b.ctx())
	failed := make(chan error, 1)
	go func() { _, err := b.Start(ctx, b.request()); failed <- err }()
	<-entered
	cancel()
	<-failed
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
	if _, err := b.Start(b.ctx(), b.request()); userError(t, err).Code != "shutting_down" {
		t.Errorf("a create after the end: %v", err)
	}
}

func TestWarmUpOfTheTemplateRunsBeforeItsGoldenIsSaved(t *testing.T) {
	b := newBench(t, nil)
	b.template.WarmUp = []Code{{"bash", "exit 3"}}
	if _, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape()); err == nil || !strings.Contains(err.Error(), "warm_up failed") {
		t.Errorf("a warm-up that fails: %v", err)
	}
	b.template.WarmUp = []Code{{"bash", "exit 0"}}
	if _, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape()); err != nil {
		t.Error(err)
	}
}

// TestWarmUpGoesWhereCodeBegins is for the first call of a sandbox that has to go there.
func TestWarmUpGoesWhereCodeBegins(t *testing.T) {
	b := newBench(t, nil)
	for _, homeless := range []bool{false, true} {
		b.mu.Lock()
		b.went, b.homeless = nil, homeless
		b.mu.Unlock()
		b.template.Dir = filepath.Join(t.TempDir(), "default")
		if err := os.Mkdir(b.template.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape()); err != nil {
			t.Errorf("homeless %v: %v", homeless, err)
		}
		b.mu.Lock()
		if !slices.Equal(b.went, []string{"/home/user"}) {
			t.Errorf("homeless %v: it went to %q", homeless, b.went)
		}
		b.mu.Unlock()
	}
}

package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// bench is a builder whose root filesystems are made by make, or in a moment.
type bench struct {
	*Builder
	t     *testing.T
	cfg   Config
	def   Definition
	roots atomic.Int32 // root filesystems built
	make  func(ctx context.Context, b *rootBuild) error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("builds need root")
	}
	b := &bench{t: t, def: Default()}
	b.cfg = Config{
		TemplatesDir: filepath.Join(t.TempDir(), "templates"), AgentPath: filepath.Join(t.TempDir(), "agent"),
		MinFreeMB: 1, etcApt: t.TempDir(), caDir: t.TempDir(),
	}
	b.cfg.build = func(r *rootBuild) func(context.Context) error {
		return func(ctx context.Context) error {
			b.roots.Add(1)
			if b.make != nil {
				if err := b.make(ctx, r); err != nil {
					return err
				}
			}
			return fakeRoot(r)
		}
	}
	b.agent("agent 1")
	b.Builder = b.another()
	return b
}

// another returns a builder as a second process would have it.
func (b *bench) another() *Builder {
	b.t.Helper()
	n, err := New(b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) agent(content string) {
	b.t.Helper()
	if err := os.WriteFile(b.cfg.AgentPath, []byte(content), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) mustBuild() Artifact {
	b.t.Helper()
	a, err := b.Build(b.t.Context(), b.def)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// nothingLeft checks that no build left a trace, other than n finished ones.
func (b *bench) nothingLeft(n int) {
	b.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(b.cfg.TemplatesDir, ".building", "*")); len(left) != 0 {
		b.t.Errorf("left behind: %v", left)
	}
	if dirs, _ := filepath.Glob(filepath.Join(b.cfg.TemplatesDir, "default", "*")); len(dirs) != n {
		b.t.Errorf("%d build directories, want %d: %v", len(dirs), n, dirs)
	}
}

func fakeRoot(r *rootBuild) error {
	r.kernel = "6.1.0-fake"
	r.versions = map[string]string{"bash": "5"}
	for _, f := range rootFiles {
		if err := os.WriteFile(filepath.Join(r.out, f), []byte("some "+f), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func TestUnchangedInputsBuildNothing(t *testing.T) {
	b := newBench(t)
	first := b.mustBuild()
	second, err := b.another().Build(t.Context(), b.def)
	if err != nil || second.Hash != first.Hash || second.Manifest.BuiltAt != first.Manifest.BuiltAt {
		t.Errorf("second build = %s, %v; want the first, %s", second.Hash, err, first.Hash)
	}
	if n := b.roots.Load(); n != 1 {
		t.Errorf("%d root filesystems built, want 1", n)
	}
	if filepath.Base(first.Dir) != first.Hash || first.Manifest.Keys.Build != first.Hash || first.Manifest.ShapeVersion != ShapeVersion {
		t.Errorf("artifact in %s has hash %s, manifest %+v", first.Dir, first.Hash, first.Manifest)
	}
	b.nothingLeft(1)
}

func TestNewAgentKeepsTheRootFilesystem(t *testing.T) {
	b := newBench(t)
	old := b.mustBuild()
	b.agent("agent 2")
	fresh := b.mustBuild()
	if n := b.roots.Load(); n != 1 {
		t.Errorf("%d root filesystems built, want 1", n)
	}
	if fresh.Hash == old.Hash || fresh.Image().Hash == old.Image().Hash {
		t.Error("the hash did not change with the agent")
	}
	for _, f := range rootFiles {
		a, errA := os.Stat(filepath.Join(old.Dir, f))
		b, errB := os.Stat(filepath.Join(fresh.Dir, f))
		if errA != nil || errB != nil || !os.SameFile(a, b) {
			t.Errorf("%s is not the same file in both builds", f)
		}
	}
	if got, err := b.Lookup("default"); err != nil || got.Hash != fresh.Hash {
		t.Errorf("Lookup = %s, %v; want the newest, %s", got.Hash, err, fresh.Hash)
	}
	if err := os.RemoveAll(old.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := load("default", fresh.Dir); err != nil {
		t.Errorf("removing the old build damaged the new one: %v", err)
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	b := newBench(t)
	boom := errors.New("boom")
	b.make = func(_ context.Context, r *rootBuild) error {
		if err := os.MkdirAll(filepath.Join(r.root, "etc"), 0o755); err != nil {
			return err
		}
		return boom
	}
	if _, err := b.Build(t.Context(), b.def); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
	b.nothingLeft(0)
	if _, err := b.Lookup("default"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Lookup after a failed build: %v", err)
	}
	b.make = nil
	b.mustBuild()
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	b := newBench(t)
	started := make(chan struct{})
	b.make = func(ctx context.Context, r *rootBuild) error {
		close(started)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error)
	go func() { _, err := b.Build(ctx, b.def); result <- err }()
	<-started
	why := errors.New("the user went home")
	cancel(why)
	if err := <-result; !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Errorf("error %v, want canceled and the cause", err)
	}
	b.nothingLeft(0)
}

// TestSingleFlight: many callers, one build; one that gives up does not end it,
// and all see its progress.
func TestSingleFlight(t *testing.T) {
	b := newBench(t)
	started, release := make(chan struct{}), make(chan struct{})
	b.make = func(ctx context.Context, r *rootBuild) error {
		close(started)
		<-release
		progress.Report(ctx, progress.Event{Step: "late"})
		return ctx.Err()
	}
	ctx, giveUp := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := b.Build(ctx, b.def); gaveUp <- err }()
	<-started
	var seen atomic.Int32
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for range 8 {
		wg.Go(func() {
			ctx := progress.With(t.Context(), func(e progress.Event) {
				if e.Step == "late" {
					seen.Add(1)
				}
			})
			_, err := b.Build(ctx, b.def)
			errs <- err
		})
	}
	waitFor(t, "eight followers", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.flights {
			f.watch.mu.Lock()
			defer f.watch.mu.Unlock()
			return len(f.watch.subs) == 9
		}
		return false
	})
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that gave up: %v", err)
	}
	close(release)
	wg.Wait()
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if b.roots.Load() != 1 || seen.Load() != 8 {
		t.Errorf("%d builds, %d saw the progress; want 1 and 8", b.roots.Load(), seen.Load())
	}
}

// TestTwoProcesses: a second builder waits for the first one's lock and then finds the result.
func TestTwoProcesses(t *testing.T) {
	b := newBench(t)
	started, release := make(chan struct{}), make(chan struct{})
	b.make = func(ctx context.Context, r *rootBuild) error { close(started); <-release; return nil }
	result := make(chan error, 2)
	go func() { _, err := b.Build(t.Context(), b.def); result <- err }()
	<-started
	waiting := make(chan struct{})
	var once sync.Once
	go func() {
		ctx := progress.With(t.Context(), func(progress.Event) { once.Do(func() { close(waiting) }) })
		_, err := b.another().Build(ctx, b.def)
		result <- err
	}()
	<-waiting
	close(release)
	for range 2 {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	if n := b.roots.Load(); n != 1 {
		t.Errorf("%d builds, want 1", n)
	}
}

func TestDamageAndLeftoversAreRepaired(t *testing.T) {
	b := newBench(t)
	a := b.mustBuild()
	stale := filepath.Join(b.tempDir("default"), "root/dev")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"truncated file": func() error { return os.Truncate(filepath.Join(a.Dir, ext4File), 1) },
		"no manifest":    func() error { return os.Remove(filepath.Join(a.Dir, manifestFile)) },
		"bad manifest":   func() error { return os.WriteFile(filepath.Join(a.Dir, manifestFile), []byte("{"), 0o644) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Lookup("default"); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%s: Lookup = %v, want not found", name, err)
		}
		before := b.roots.Load()
		if again := b.mustBuild(); again.Hash != a.Hash || b.roots.Load() != before+1 {
			t.Errorf("%s: not built again", name)
		}
	}
	b.nothingLeft(1)
}

func TestRemoveAndPrune(t *testing.T) {
	b := newBench(t)
	var made []Artifact
	for i := range 4 {
		b.agent(fmt.Sprint("agent ", i))
		made = append(made, b.mustBuild())
	}
	gone, err := b.Prune(t.Context(), nil, made[0].Manifest.BuiltAt)
	if err != nil || len(gone) != 0 {
		t.Fatalf("Prune of what was built before the first = %d, %v", len(gone), err)
	}
	gone, err = b.Prune(t.Context(), []string{made[1].Hash}, time.Now())
	if err != nil || len(gone) != 2 {
		t.Fatalf("Prune = %d, %v; want 2 gone", len(gone), err)
	}
	left, err := b.List()
	if err != nil || len(left) != 2 || left[0].Hash != made[3].Hash || left[1].Hash != made[1].Hash {
		t.Errorf("left: %d, %v; want the newest and the one in use", len(left), err)
	}
	b.nothingLeft(2)
	if err := b.Remove(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft(0)
	for _, name := range []string{"default", "../x", ""} {
		if err := b.Remove(t.Context(), name); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("Remove(%q) = %v, want not found", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	b.cfg.MinFreeMB = 1 << 40
	if _, err := b.another().Build(t.Context(), b.def); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("without disk space: %v", err)
	}
	b.nothingLeft(0)
	b.cfg.AgentPath += ".missing"
	if _, err := b.another().Build(t.Context(), b.def); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("without an agent: %v", err)
	}
	if _, err := New(Config{TemplatesDir: "/tmp/a b"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a path with a space: %v", err)
	}
	if n := b.roots.Load(); n != 0 {
		t.Errorf("%d builds were started", n)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

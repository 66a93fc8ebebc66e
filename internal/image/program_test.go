package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// fakeProgram puts a shell script in front of the PATH.
func fakeProgram(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func testRoot(t *testing.T) *rootBuild {
	t.Helper()
	work := t.TempDir()
	return &rootBuild{
		def: Default(), arch: "amd64", work: work, root: filepath.Join(work, "root"), out: filepath.Join(work, "out"),
		cache: filepath.Join(work, "cache"), sources: []source{{publicMirror, "bookworm", []string{"main"}}},
	}
}

func TestDebootstrapFailureShowsTheEndOfItsOutput(t *testing.T) {
	fakeProgram(t, "mmdebstrap", `for i in $(seq 100); do echo "line $i" >&2; done; printf 'E: cannot fetch'; exit 25`)
	err := testRoot(t).debootstrap(t.Context())
	var failed *programError
	if !errors.As(err, &failed) {
		t.Fatalf("error %v, want a programError", err)
	}
	lines := strings.Split(failed.Tail, "\n")
	if len(lines) != tailLines || !strings.Contains(failed.Tail, "line 100") || !strings.Contains(failed.Tail, "E: cannot fetch") {
		t.Errorf("tail of %d lines:\n%s", len(lines), failed.Tail)
	}
}

func TestDebootstrapProgressAndCache(t *testing.T) {
	fakeProgram(t, "mmdebstrap", `
echo "I: downloading packages with apt..." >&2
echo "0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded."
echo "Unpacking bash (5.2) ..."; echo "Setting up bash (5.2) ..."
echo "I: installing remaining packages inside the chroot..." >&2
echo "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."
for p in jq curl; do echo "Unpacking $p (1) ..."; echo "Setting up $p (1) ..."; done
echo "Checking nothing"
ls root/var/cache/apt/archives/ | sed 's/^/I: cached /'
echo new > root/var/cache/apt/archives/new_1_all.deb
`)
	b := testRoot(t)
	if err := os.Mkdir(b.cache, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.cache, "old_1_all.deb"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	var events []progress.Event
	ctx := progress.With(t.Context(), func(e progress.Event) { events = append(events, e) })
	if err := b.debootstrap(ctx); err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, e := range events {
		if e.Fraction < last {
			t.Errorf("progress went back from %v to %v at %q", last, e.Fraction, e.Detail)
		}
		last = e.Fraction
	}
	if last != 1 || events[len(events)-1].Detail != "cached old_1_all.deb" {
		t.Errorf("ended with %+v, want fraction 1 and the cached package in its place", events[len(events)-1])
	}
	files, err := debs(b.cache)
	if err != nil || len(files) != 2 {
		t.Errorf("cache holds %v, %v; want the old and the new package", files, err)
	}
}

// TestCancelEndsTheWholeGroup: a program that ignores the wish to stop and has
// a child is gone when run returns.
func TestCancelEndsTheWholeGroup(t *testing.T) {
	dir := t.TempDir()
	fakeProgram(t, "stubborn", `sleep 300 & echo $! > `+dir+`/child; trap 'exit 3' TERM; echo ready; wait`)
	ctx, cancel := context.WithCancel(t.Context())
	err := program{Name: "stubborn", OnLine: func(string) { cancel() }}.run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child's end", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func TestMissingProgramNamesItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := program{Name: "mkfs.ext4"}.run(t.Context())
	if sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "apt-get install e2fsprogs") {
		t.Errorf("error %v, want one that names e2fsprogs", err)
	}
	if err := missingHostPackages(); sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "mmdebstrap e2fsprogs") {
		t.Errorf("error %v, want one that names all packages", err)
	}
}

// TestRemoveTreeSparesMounts: what is mounted in a build directory is unmounted, not deleted.
func TestRemoveTreeSparesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	precious, dir := t.TempDir(), filepath.Join(t.TempDir(), "build")
	keep := filepath.Join(precious, "keep")
	if err := os.WriteFile(keep, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dev", "with space"} {
		point := filepath.Join(dir, "root", name)
		if err := os.MkdirAll(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(precious, point, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
	}
	if err := removeTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("deleted through a mount: %v", err)
	}
}

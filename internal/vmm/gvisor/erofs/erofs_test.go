package erofs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func sample(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	when := time.Unix(1700000000, 5000)
	put := func(h tar.Header, data string) {
		h.Size, h.ModTime, h.Format = int64(len(data)), when, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	put(tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	put(tar.Header{Name: "./usr/bin/early", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 7, Gid: 70000}, "before its directory")
	put(tar.Header{Name: "./usr/bin", Typeflag: tar.TypeDir, Mode: 0o1770, Uid: 3}, "")
	put(tar.Header{Name: "./empty", Typeflag: tar.TypeReg, Mode: 0o600}, "")
	put(tar.Header{Name: "./block", Typeflag: tar.TypeReg, Mode: 0o600}, strings.Repeat("b", blockSize))
	put(tar.Header{Name: "./large", Typeflag: tar.TypeReg, Mode: 0o600}, strings.Repeat("0123456789", 12345))
	put(tar.Header{Name: "./hard", Typeflag: tar.TypeLink, Linkname: "./large"}, "")
	put(tar.Header{Name: "./null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3}, "")
	put(tar.Header{Name: "./fifo", Typeflag: tar.TypeFifo, Mode: 0o600}, "")
	put(tar.Header{Name: "./many/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	for i := range 600 { // several blocks of entries
		put(tar.Header{Name: fmt.Sprintf("./many/%s-%d", strings.Repeat("n", i%200+1), i), Typeflag: tar.TypeReg, Mode: 0o644}, fmt.Sprint(i))
		put(tar.Header{Name: fmt.Sprintf("./many/link-%d", i), Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("t", i*6+1)}, "")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func write(t *testing.T, archive *bytes.Buffer, more ...File) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(f, archive, more...); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestLinuxReadsTheImage mounts an image that this test made.
func TestLinuxReadsTheImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	name := write(t, sample(t), File{"/.ramet/init", 0o555, []byte("agent")}, File{"/empty", 0o644, []byte("replaced")})
	dir := t.TempDir()
	loop, err := attach(t, name)
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	if err := unix.Mount(loop, dir, "erofs", unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	for path, want := range map[string]string{
		"usr/bin/early": "before its directory", "empty": "replaced", ".ramet/init": "agent",
		"block": strings.Repeat("b", blockSize), "large": strings.Repeat("0123456789", 12345), "hard": strings.Repeat("0123456789", 12345),
	} {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	for path, want := range map[string]struct {
		mode     os.FileMode
		uid, gid uint32
		links    uint64
	}{
		"usr/bin/early": {0o755 | os.ModeSetuid, 7, 70000, 1},
		"usr/bin":       {0o770 | os.ModeSticky | os.ModeDir, 3, 0, 2},
		"usr":           {0o755 | os.ModeDir, 0, 0, 3},
		"hard":          {0o600, 0, 0, 2},
		"null":          {0o666 | os.ModeDevice | os.ModeCharDevice, 0, 0, 1},
		"fifo":          {0o600 | os.ModeNamedPipe, 0, 0, 1},
	} {
		info, err := os.Lstat(filepath.Join(dir, path))
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if info.Mode() != want.mode || st.Uid != want.uid || st.Gid != want.gid || uint64(st.Nlink) != want.links {
			t.Errorf("%s: %v, %d:%d, %d links", path, info.Mode(), st.Uid, st.Gid, st.Nlink)
		}
		if path == "null" && st.Rdev != unix.Mkdev(1, 3) {
			t.Errorf("null is device %x", st.Rdev)
		}
		if path == "hard" && !info.ModTime().Equal(time.Unix(1700000000, 5000)) {
			t.Errorf("time %v", info.ModTime())
		}
	}
	checkMany(t, filepath.Join(dir, "many"))
}

func checkMany(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1200 {
		t.Errorf("%d entries, %v", len(list), err)
	}
	for i := range 600 {
		name := fmt.Sprintf("%s-%d", strings.Repeat("n", i%200+1), i)
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != fmt.Sprint(i) {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		if got, err := os.Readlink(filepath.Join(dir, fmt.Sprintf("link-%d", i))); err != nil || len(got) != i*6+1 {
			t.Fatalf("link %d: %d bytes, %v", i, len(got), err)
		}
	}
}

// attach makes a loop device of a file, read-only, until the test ends.
func attach(t *testing.T, name string) (string, error) {
	t.Helper()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer ctl.Close()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", err
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { loop.Close() })
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(f.Fd())); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			t.Error(err)
		}
	})
	return loop.Name(), nil
}

func TestTheSameTarMakesTheSameImage(t *testing.T) {
	a, err := os.ReadFile(write(t, sample(t)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(write(t, sample(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) || len(a)%blockSize != 0 {
		t.Error("two images of one tar differ")
	}
}

func TestBadTarsAreRefused(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"a file as a directory":         {{Name: "a", Typeflag: tar.TypeReg}, {Name: "a/b", Typeflag: tar.TypeReg}},
		"a file in a directory's place": {{Name: "a", Typeflag: tar.TypeDir}, {Name: "a", Typeflag: tar.TypeReg}},
		"a link to nothing":             {{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}},
		"a link to a directory":         {{Name: "d", Typeflag: tar.TypeDir}, {Name: "a", Typeflag: tar.TypeLink, Linkname: "d"}},
		"a long name":                   {{Name: strings.Repeat("x", 256), Typeflag: tar.TypeReg}},
		"a long target":                 {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("x", maxTarget+1)}},
		"a file as the root":            {{Name: ".", Typeflag: tar.TypeReg}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := Write(f, &b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

package vmmtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"

	"ramet.dev/ramet/internal/vmm"
)

// imageDiskMB is the size of the test image's disk.
const imageDiskMB = 256

// Image builds the test guest and returns an image that boots it. The kernel
// and the archive with its modules come from RAMET_TEST_KERNEL and
// RAMET_TEST_INITRD, or else from a template that was built in RAMET_TEST_HOME
// (or RAMET_HOME, or the default data directory). Without a kernel the test fails.
func Image(t testing.TB) vmm.Image {
	t.Helper()
	kernel, modules := os.Getenv("RAMET_TEST_KERNEL"), os.Getenv("RAMET_TEST_INITRD")
	if kernel == "" {
		kernel, modules = builtKernel()
	}
	if kernel == "" {
		t.Fatal("no guest kernel: build the default template, or set RAMET_TEST_KERNEL and RAMET_TEST_INITRD")
	}
	dir := t.TempDir()
	img := vmm.Image{
		Hash: "vmmtest", Kernel: kernel,
		Initrd: filepath.Join(dir, "initrd.img"), RootExt4: filepath.Join(dir, "root.raw"),
	}
	if err := writeInitrd(dir, modules, img.Initrd); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(img.RootExt4)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(imageDiskMB << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("base"), 1024), 0); err != nil {
		t.Fatal(err)
	}
	return img
}

// SandboxImage is Image for drivers whose guests have no kernel of their own.
func SandboxImage(t testing.TB) vmm.Image {
	t.Helper()
	dir := t.TempDir()
	img := vmm.Image{Hash: "vmmtest", Initrd: filepath.Join(dir, "initrd.img"), RootTar: filepath.Join(dir, "rootfs.tar.zst")}
	if err := writeInitrd(dir, "", img.Initrd); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, name := range []string{"./", "./tmp/"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close(), os.WriteFile(img.RootTar, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return img
}

// builtKernel finds the kernel and initrd of the newest built template.
func builtKernel() (kernel, initrd string) {
	for _, home := range []string{os.Getenv("RAMET_TEST_HOME"), os.Getenv("RAMET_HOME"), "/var/lib/ramet"} {
		if home == "" {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(home, "templates", "*", "*", "vmlinuz"))
		sort.Slice(found, func(i, j int) bool { return modTime(found[i]) > modTime(found[j]) })
		for _, k := range found {
			i := filepath.Join(filepath.Dir(k), "initrd.img")
			if _, err := os.Stat(i); err == nil {
				return k, i
			}
		}
	}
	return "", ""
}

func modTime(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.ModTime().UnixNano()
}

// writeInitrd joins the archive with the modules, if there is one, and one with the test guest as
// /init; the kernel unpacks both, the later one over the earlier.
func writeInitrd(dir, modules, path string) error {
	bin := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "ramet.dev/ramet/internal/vmm/vmmtest/testguest/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the test guest: %w: %s", err, out)
	}
	program, err := os.ReadFile(bin)
	if err != nil {
		return err
	}
	var first []byte
	if modules != "" {
		if first, err = os.ReadFile(modules); err != nil {
			return err
		}
	}
	var second bytes.Buffer
	w := cpio.Newc.Writer(&second)
	if err := w.WriteRecord(cpio.StaticFile("init", string(program), 0o755)); err != nil {
		return err
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return err
	}
	pad := make([]byte, -len(first)&511)
	return os.WriteFile(path, append(append(first, pad...), second.Bytes()...), 0o644)
}

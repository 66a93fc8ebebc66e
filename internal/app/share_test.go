package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/sandbox"
)

// fakeBuild makes a complete build of a template, with a golden snapshot.
func fakeBuild(t *testing.T, home config.Home, name, hash string, at time.Time) string {
	t.Helper()
	dir := filepath.Join(home.Templates(), name, hash)
	golden := filepath.Join(dir, "golden", "qemu", "2x1024")
	if err := os.MkdirAll(golden, 0o755); err != nil {
		t.Fatal(err)
	}
	m := image.Manifest{Format: 1, BuiltAt: at, Files: map[string]image.File{}}
	m.Keys.Build = hash
	for _, f := range []string{"vmlinuz", "modules.cpio", "initrd.img", "rootfs.tar.zst", "rootfs.ext4"} {
		m.Files[f] = image.File{Bytes: int64(len(f))}
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{filepath.Join(dir, "manifest.json"): text, filepath.Join(golden, "memory"): []byte("m")} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestShareTemplate(t *testing.T) {
	from, to := config.Home(t.TempDir()), config.Home(t.TempDir())
	old, now := strings.Repeat("a", 64), strings.Repeat("b", 64)
	if err := ShareTemplate(from, to, "default"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Fatalf("nothing is built: %v", err)
	}
	fakeBuild(t, from, "default", old, time.Unix(1, 0))
	dir := fakeBuild(t, from, "default", now, time.Unix(2, 0))
	fakeBuild(t, from, "science", old, time.Unix(3, 0))
	if err := ShareTemplate(from, to, "default"); err != nil {
		t.Fatal(err)
	}
	builder, err := image.New(image.Config{TemplatesDir: to.Templates()})
	if err != nil {
		t.Fatal(err)
	}
	all, err := builder.List()
	if err != nil || len(all) != 1 || all[0].Hash != now {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, name := range []string{"rootfs.ext4", "golden/qemu/2x1024/memory"} {
		a, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.Stat(filepath.Join(all[0].Dir, name)); err != nil || !os.SameFile(a, b) {
			t.Errorf("%s is not the same file: %v", name, err)
		}
	}
	// What becomes of one is nothing to the other.
	if err := os.RemoveAll(to.Templates()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "golden/qemu/2x1024/memory")); err != nil {
		t.Error(err)
	}
}

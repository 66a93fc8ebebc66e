package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ramet.dev/ramet/internal/durable"
)

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	state, err := WriteFile(nil, dir, "device.state", strings.NewReader("state"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := writePages(dir, "memory.pages", func(w *PageWriter) error { return w.Add(0, 8192, make([]byte, PageSize)) })
	if err != nil {
		t.Fatal(err)
	}
	m := Manifest{Format: Format, Driver: "qemu", State: state, Pages: &pages, Base: &Base{Dir: "golden/2"}}
	if err := m.Save(nil, dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != state || *got.Pages != pages || *got.Base != *m.Base {
		t.Errorf("got %+v", got)
	}
	if err := got.Verify(t.Context(), dir); err != nil {
		t.Errorf("a whole snapshot: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := os.WriteFile(filepath.Join(dir, "device.state"), []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c *CorruptError
	if err := got.Verify(t.Context(), dir); !errors.As(err, &c) {
		t.Errorf("a damaged snapshot: %v", err)
	}
}

func TestManifestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":        `{`,
		"newer format":    `{"format": 2}`,
		"nothing in it":   `{"format": 1, "state": {"name": "s"}}`,
		"a path":          `{"format": 1, "state": {"name": "../s"}, "memory": {"name": "m"}}`,
		"dots":            `{"format": 1, "state": {"name": ".."}, "memory": {"name": "m"}}`,
		"absolute":        `{"format": 1, "state": {"name": "/etc/passwd"}, "memory": {"name": "m"}}`,
		"negative size":   `{"format": 1, "state": {"name": "s", "size": -1}, "memory": {"name": "m"}}`,
		"base, no pages":  `{"format": 1, "state": {"name": "s"}, "base": {"dir": "x"}}`,
		"too large":       `{"format": 1, "x": "` + strings.Repeat("x", maxManifest) + `"}`,
		"bad layer":       `{"format": 1, "state": {"name": "s"}, "memory": {"name": "m"}, "layers": [{"name": "a/b"}]}`,
		"empty file name": `{"format": 1, "state": {}, "memory": {"name": "m"}}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var c *CorruptError
		if _, err := Load(dir); !errors.As(err, &c) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var c *CorruptError
	if _, err := Load(t.TempDir()); !errors.As(err, &c) {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestMissingFilesAreDamage: they are found out like wrong ones, and not as any file
// that is not there.
func TestMissingFilesAreDamage(t *testing.T) {
	dir, f := t.TempDir(), File{Name: "gone", Size: 4096}
	for name, err := range map[string]error{
		"verify": f.Verify(dir), "memory": f.LoadMemory(dir, nil), "pages": f.ReadPages(dir, nil, nil),
	} {
		var c *CorruptError
		if !errors.As(err, &c) || c.Path != filepath.Join(dir, "gone") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// memory makes a file of size bytes with data at some pages.
func memory(t *testing.T, size int64, pages ...int64) (*os.File, []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, size)
	for _, p := range pages {
		page := bytes.Repeat([]byte{byte(p) | 1}, PageSize)
		copy(whole[p*PageSize:], page)
		if _, err := f.WriteAt(page, p*PageSize); err != nil {
			t.Fatal(err)
		}
	}
	return f, whole
}

func TestMemory(t *testing.T) {
	const size = 8 << 20
	src, whole := memory(t, size, 0, 1, 255, 256, 700, size/PageSize-1)
	// Zeros that are written are not data either.
	if _, err := src.WriteAt(make([]byte, 1<<20), 4<<20); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := WriteMemory(nil, dir, "memory.img", src, size)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(whole); f.SHA256 != hex.EncodeToString(sum[:]) || f.Size != size {
		t.Errorf("entry %+v", f)
	}
	if err := f.Verify(dir); err != nil {
		t.Error(err)
	}
	dst, _ := memory(t, size)
	if err := f.LoadMemory(dir, dst); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	if _, err := dst.ReadAt(got, 0); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("loaded memory differs: %v", err)
	}
	bad := f
	bad.SHA256 = strings.Repeat("0", 64)
	var c *CorruptError
	if err := bad.LoadMemory(dir, dst); !errors.As(err, &c) {
		t.Errorf("a wrong checksum: %v", err)
	}
}

// TestCopy keeps content and shares no inode; a link shares it.
func TestCopy(t *testing.T) {
	src, whole := memory(t, 3<<20, 1, 500)
	for name, put := range map[string]func(*durable.Disk, string, string) error{"copy": Copy, "link": LinkOrCopy} {
		dst := filepath.Join(t.TempDir(), "layer")
		if err := put(nil, src.Name(), dst); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(dst)
		if err != nil || !bytes.Equal(got, whole) {
			t.Errorf("%s: content differs: %v", name, err)
		}
		a, err1 := os.Stat(src.Name())
		b, err2 := os.Stat(dst)
		if err := errors.Join(err1, err2); err != nil || os.SameFile(a, b) != (name == "link") {
			t.Errorf("%s: same file %v, %v", name, os.SameFile(a, b), err)
		}
	}
}

// TestPagesRoundTrip writes any runs and reads the same ones back.
func TestPagesRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		type piece struct {
			region uint32
			offset uint64
			data   []byte
		}
		var in, out []piece
		for i := range rapid.IntRange(0, 20).Draw(rt, "runs") {
			data := make([]byte, PageSize*rapid.IntRange(1, 5).Draw(rt, "pages"))
			r := rand.NewChaCha8([32]byte{byte(i)})
			_, _ = r.Read(data) // never fails
			in = append(in, piece{uint32(rapid.IntRange(0, 1).Draw(rt, "region")), PageSize * uint64(rapid.IntRange(0, 1000).Draw(rt, "at")), data})
		}
		f, err := writePages(dir, "p", func(w *PageWriter) error {
			for _, p := range in {
				if err := w.Add(p.region, p.offset, p.data); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		if err := f.verifyPages(dir); err != nil {
			rt.Fatal(err)
		}
		err = f.ReadPages(dir, []uint64{5 << 20, 5 << 20}, func(region uint32, offset uint64, data []byte) error {
			out = append(out, piece{region, offset, bytes.Clone(data)})
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		if fmt.Sprint(in) != fmt.Sprint(out) {
			rt.Fatal("runs differ")
		}
	})
}

func TestPagesRefused(t *testing.T) {
	dir := t.TempDir()
	f, err := writePages(dir, "p", func(w *PageWriter) error {
		for name, bad := range map[string]func() error{
			"empty":     func() error { return w.Add(0, 0, nil) },
			"half page": func() error { return w.Add(0, 0, make([]byte, 100)) },
			"unaligned": func() error { return w.Add(0, 1, make([]byte, PageSize)) },
			"too long":  func() error { return w.Add(0, 0, make([]byte, MaxRun+PageSize)) },
		} {
			if bad() == nil {
				t.Errorf("%s run was taken", name)
			}
		}
		return w.Add(1, 1<<20, bytes.Repeat([]byte{7}, 2*PageSize))
	})
	if err != nil {
		t.Fatal(err)
	}
	place := func(uint32, uint64, []byte) error { return nil }
	var c *CorruptError
	for name, limits := range map[string][]uint64{"no such region": {1 << 30}, "outside": {0, 1<<20 + PageSize}} {
		if err := f.ReadPages(dir, limits, place); !errors.As(err, &c) {
			t.Errorf("%s: %v", name, err)
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	// Every single damaged byte is found.
	for i := 0; i < len(whole); i += 97 {
		bad := bytes.Clone(whole)
		bad[i] ^= 4
		if err := os.WriteFile(filepath.Join(dir, "p"), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.ReadPages(dir, []uint64{1 << 30, 1 << 30}, place); !errors.As(err, &c) {
			t.Fatalf("byte %d of %d damaged: %v", i, len(whole), err)
		}
	}
}

// FuzzIndex reads arbitrary bytes as a page file's index.
func FuzzIndex(f *testing.F) {
	dir := f.TempDir()
	if _, err := writePages(dir, "p", func(w *PageWriter) error { return w.Add(0, 0, make([]byte, PageSize)) }); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "p"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(PagesMagic + PagesMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		runs, err := readIndex(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		total := int64(len(PagesMagic) + trailerSize)
		for _, r := range runs {
			total += r.bytes() + entrySize
		}
		if total != int64(len(data)) {
			t.Errorf("an index of %d bytes was taken for a file of %d", total, len(data))
		}
	})
}

// FuzzManifest parses arbitrary bytes as a manifest.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format": 1, "state": {"name": "s"}, "memory": {"name": "m"}, "layers": [{"name": "l"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse("x", data)
		if err != nil {
			return
		}
		for _, file := range m.Files() {
			if strings.Contains(file.Name, "/") || !filepath.IsLocal(file.Name) {
				t.Errorf("file name %q was taken", file.Name)
			}
		}
	})
}

// writePages writes a page file from the runs that fill adds.
func writePages(dir, name string, fill func(*PageWriter) error) (File, error) {
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return File{}, err
	}
	w := NewPageWriter(file)
	err = errors.Join(fill(w), w.Finish(), file.Close())
	return File{Name: name, Size: w.Size()}, err
}

package initramfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
)

// fakeModules writes a modules directory with the given modules.dep; every
// module's content is its own path.
func fakeModules(t *testing.T, dep, builtin string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("modules.dep", dep)
	write("modules.builtin", builtin)
	for line := range strings.Lines(dep) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			write(name, name)
		}
	}
	return dir
}

const dep = `kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko kernel/lib/crc16.ko
kernel/fs/jbd2/jbd2.ko: kernel/lib/crc16.ko
kernel/fs/mbcache.ko:
kernel/lib/crc16.ko:
kernel/drivers/char/hw_random/virtio-rng.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
`

func TestLoadOrder(t *testing.T) {
	dir := fakeModules(t, dep, "kernel/drivers/block/virtio_blk.ko\n")
	got, err := loadOrder(dir, []string{"virtio_rng", "virtio-blk", "ext4", "crc16"})
	want := []string{
		"kernel/drivers/virtio/virtio.ko", "kernel/drivers/char/hw_random/virtio-rng.ko",
		"kernel/lib/crc16.ko", "kernel/fs/jbd2/jbd2.ko", "kernel/fs/mbcache.ko", "kernel/fs/ext4/ext4.ko",
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("load order (-want +got):\n%s", diff)
	}
}

func TestLoadOrderErrors(t *testing.T) {
	for name, c := range map[string]struct{ dep, want, err string }{
		"no such module":  {dep, "nvme", "there is no module nvme"},
		"cycle":           {"a.ko: b.ko\nb.ko: a.ko\n", "a", "depends on itself"},
		"unknown need":    {"a.ko: b.ko\n", "a", "needed but not listed"},
		"bad line":        {"a.ko b.ko\n", "a", "bad line"},
		"leaves the tree": {"../../a.ko:\n", "a", "bad line"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"modules.dep": c.dep, "modules.builtin": ""} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := loadOrder(dir, []string{c.want}); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.err)
		}
	}
}

// TestArchive reads back both halves, joined as the kernel gets them.
func TestArchive(t *testing.T) {
	dir := fakeModules(t, dep, "")
	agent := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(agent, []byte("the agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	var half, whole bytes.Buffer
	paths, err := WriteModules(&half, dir, []string{"ext4"})
	if err != nil {
		t.Fatal(err)
	}
	if half.Len()%4 != 0 {
		t.Errorf("the first half has %d bytes: the kernel wants the next at a multiple of 4", half.Len())
	}
	if _, err := WriteModules(&whole, dir, []string{"ext4"}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(half.Bytes(), whole.Bytes()) {
		t.Error("two archives of the same modules differ")
	}
	var second bytes.Buffer
	if err := WriteAgent(&second, agent); err != nil {
		t.Fatal(err)
	}
	records := append(readArchive(t, half.Bytes()), readArchive(t, second.Bytes())...)
	content := map[string]string{}
	for _, r := range records {
		if r.Info.FileSize > 0 {
			b := make([]byte, r.Info.FileSize)
			if _, err := r.ReadAt(b, 0); err != nil {
				t.Fatal(err)
			}
			content["/"+r.Name] = string(b)
		}
		if r.Name == "init" && r.Info.Mode&0o777 != 0o755 {
			t.Errorf("/init has mode %o", r.Info.Mode)
		}
	}
	if content["/init"] != "the agent" {
		t.Errorf("/init = %q", content["/init"])
	}
	list := strings.Fields(content[ListFile])
	if diff := cmp.Diff(paths, list); diff != "" {
		t.Errorf("list of modules (-returned +in the archive):\n%s", diff)
	}
	if want := "/modules/ext4.ko"; len(list) != 4 || list[3] != want {
		t.Errorf("list = %v, want 4 with %s last", list, want)
	}
	for _, p := range list {
		if !strings.HasSuffix(content[p], filepath.Base(p)) {
			t.Errorf("%s holds %q", p, content[p])
		}
	}
}

func readArchive(t *testing.T, b []byte) []cpio.Record {
	t.Helper()
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(b)))
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func TestCompressedModulesAreRefused(t *testing.T) {
	dir := fakeModules(t, "a.ko.xz:\n", "")
	if _, err := WriteModules(&bytes.Buffer{}, dir, []string{"a"}); err == nil || !strings.Contains(err.Error(), "compressed") {
		t.Errorf("error %v, want one that says compressed", err)
	}
}

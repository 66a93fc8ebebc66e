package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// capNetRaw is the extended attribute of a file with cap_net_raw=ep.
const capNetRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// specialTree makes a directory with everything that is easily lost.
func specialTree(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("device nodes and owners need root")
	}
	root := filepath.Join(t.TempDir(), "root")
	var err error
	do := func(e error) { err = errors.Join(err, e) }
	do(os.Mkdir(root, 0o755))
	p := func(name string) string { return filepath.Join(root, name) }
	do(os.WriteFile(p("setuid"), []byte("s"), 0o755))
	do(os.Chmod(p("setuid"), 0o755|os.ModeSetuid))
	do(os.Link(p("setuid"), p("twin")))
	do(os.WriteFile(p("capable"), []byte("c"), 0o755))
	do(unix.Setxattr(p("capable"), "security.capability", []byte(capNetRaw), 0))
	do(os.Mkdir(p("home"), 0o750))
	do(os.Chown(p("home"), 1000, 1001))
	do(os.Mkdir(p("tmp"), 0o777))
	do(os.Chmod(p("tmp"), 0o777|os.ModeSticky))
	do(os.Symlink("/etc/absolute", p("link")))
	do(unix.Mknod(p("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	do(os.WriteFile(p("big"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestTarKeepsEverything(t *testing.T) {
	root := specialTree(t)
	file := filepath.Join(t.TempDir(), "x.tar.zst")
	if err := writeTar(t.Context(), root, file); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	got := map[string]*tar.Header{}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name], names = h, append(names, h.Name)
	}
	want := []string{"./", "./big", "./capable", "./home/", "./link", "./null", "./setuid", "./tmp/", "./twin"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
	for what, ok := range map[string]bool{
		"setuid bit":   got["./setuid"].Mode == 0o4755,
		"hard link":    got["./twin"].Typeflag == tar.TypeLink && got["./twin"].Linkname == "./setuid",
		"capability":   got["./capable"].PAXRecords["SCHILY.xattr.security.capability"] == capNetRaw,
		"owner":        got["./home/"].Uid == 1000 && got["./home/"].Gid == 1001 && got["./home/"].Mode == 0o750,
		"no names":     got["./big"].Uname == "" && got["./big"].Gname == "",
		"sticky bit":   got["./tmp/"].Mode == 0o1777,
		"symlink":      got["./link"].Linkname == "/etc/absolute",
		"device":       got["./null"].Typeflag == tar.TypeChar && got["./null"].Devmajor == 1 && got["./null"].Devminor == 3,
		"size":         got["./big"].Size == 1<<20,
		"whole second": got["./big"].ModTime.Nanosecond() == 0,
	} {
		if !ok {
			t.Errorf("%s is lost", what)
		}
	}
}

func TestExt4KeepsEverything(t *testing.T) {
	root := specialTree(t)
	file := filepath.Join(t.TempDir(), "x.ext4")
	if err := writeExt4(t.Context(), root, file, 1024); err != nil {
		t.Fatal(err)
	}
	if err := (program{Name: "e2fsck", Args: []string{"-f", "-n", file}}).run(t.Context()); err != nil {
		t.Error(err)
	}
	debugfs := func(command string) string {
		var out strings.Builder
		if err := (program{Name: "debugfs", Args: []string{"-R", command, file}, Stdout: &out}).run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	for _, c := range []struct{ command, want string }{
		{"stat /setuid", "Mode: 04755"},
		{"stat /setuid", "Links: 2"},
		{"stat /twin", "Mode: 04755"},
		{"ea_list /capable", "security.capability (20)"},
		{"stat /home", "User: 1000 Group: 1001"},
		{"stat /tmp", "Mode: 01777"},
		{"stat /null", "Device major/minor number: 01:03"},
		{"stat /link", "/etc/absolute"},
		{"stat /big", "Size: 1048576"},
		{"show_super_stats -h", "Reserved GDT blocks"},
	} {
		if got := debugfs(c.command); !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q in\n%s", c.command, c.want, got)
		}
	}
	// Inode tables that are not zeroed would be by a kernel thread of every guest.
	var groups strings.Builder
	if err := (program{Name: "dumpe2fs", Args: []string{file}, Stdout: &groups}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := len(regexp.MustCompile(`(?m)^Group \d+:`).FindAllString(groups.String(), -1))
	if zeroed := strings.Count(groups.String(), "ITABLE_ZEROED"); n != 8 || zeroed != n {
		t.Errorf("%d of %d inode tables are initialised", zeroed, n)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil || st.Size != 1<<30 || st.Blocks*512 > 100<<20 {
		t.Errorf("image of %d bytes takes %d on the disk: not sparse (%v)", st.Size, st.Blocks*512, err)
	}
}

func TestHostCA(t *testing.T) {
	cert, err := os.ReadFile("testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.crt": "comment\n" + string(cert), "same.crt": string(cert), "b.txt": string(cert), "bad.crt": "nothing here",
		"key.crt": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readCADir(dir, slog.New(slog.DiscardHandler))
	if err != nil || !bytes.Equal(got, cert) {
		t.Errorf("got %q, %v; want the certificate once, and nothing else", got, err)
	}
	if n := len(splitPEM(append(got, got...))); n != 2 {
		t.Errorf("split into %d", n)
	}
	if got, err := readCADir(filepath.Join(dir, "missing"), slog.New(slog.DiscardHandler)); err != nil || got != nil {
		t.Errorf("without a directory: %q, %v", got, err)
	}
}

func TestNodeClosure(t *testing.T) {
	dir := t.TempDir()
	var err error
	module := func(rel, deps string) {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, rel), 0o755),
			os.WriteFile(filepath.Join(dir, rel, "package.json"), []byte(`{"dependencies":{`+deps+`}}`), 0o644))
	}
	module("npm", `"a":"1","@s/b":"1","left-out":"1"`)
	module("npm/node_modules/a", `"npm":"1","c":"1"`)
	module("a", `"unreached":"1"`)
	module("@s/b", `"nested":"1"`)
	module("npm/node_modules/nested", ``)
	module("c-real", ``)
	module("unreached", ``)
	err = errors.Join(err, os.Symlink("c-real", filepath.Join(dir, "c")), os.Symlink("../npm/node_modules", filepath.Join(dir, "@s/node_modules")))
	if err != nil {
		t.Fatal(err)
	}
	got, err := nodeClosure(dir, "npm")
	want := []string{"npm", "@s/b", "@s/node_modules", "@s/node_modules/nested", "npm/node_modules/a", "c", "c-real"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("closure (-want +got), %v:\n%s", err, diff)
	}
	if _, err := nodeClosure(dir, "missing"); err == nil {
		t.Error("a module that is not there was found")
	}
}

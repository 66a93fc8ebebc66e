//go:build integration

package image

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/progress"
)

// TestRealDefaultTemplate builds the real template and looks into it. With
// RAMET_TEST_HOME the build is kept there and found again by its hash.
func TestRealDefaultTemplate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("building a template needs root")
	}
	home := os.Getenv("RAMET_TEST_HOME")
	if home == "" {
		home = t.TempDir()
	}
	b, err := New(Config{TemplatesDir: filepath.Join(home, "templates"), AgentPath: testAgent(t), Logger: slog.Default()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	start := time.Now()
	a, err := b.Build(progress.With(ctx, func(e progress.Event) {
		if e.Detail == "" {
			t.Logf("%6.1fs %s done=%v", time.Since(start).Seconds(), e.Step, e.Done)
		}
	}), Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("built or found in %v", time.Since(start).Round(time.Millisecond))
	for name, f := range a.Manifest.Files {
		t.Logf("%-15s %11d bytes, %11d on disk", name, f.Bytes, f.DiskBytes)
	}
	start = time.Now()
	if again, err := b.Build(ctx, Default()); err != nil || again.Hash != a.Hash {
		t.Fatalf("second build: %s, %v", again.Hash, err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("finding the build took %v", d)
	}
	if err := (program{Name: "e2fsck", Args: []string{"-f", "-n", a.Image().RootExt4}}).run(ctx); err != nil {
		t.Error(err)
	}
	root := extract(t, a.Image().RootTar)
	checkContents(t, root, a.Manifest.Kernel)
}

// testAgent compiles the real agent, the way that make does.
func testAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ramet-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", path, "ramet.dev/ramet/cmd/ramet-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile the agent: %v\n%s", err, out)
	}
	return path
}

// extract unpacks the canonical form, which is so tested against another tar.
func extract(t *testing.T, file string) string {
	t.Helper()
	root := t.TempDir()
	if out, err := exec.Command("tar", "--zstd", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf", file, "-C", root).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := removeTree(root); err != nil {
			t.Error(err)
		}
	})
	return root
}

// checkContents runs programs of the root filesystem in it.
func checkContents(t *testing.T, root, kernel string) {
	for _, c := range []struct{ script, want string }{
		{"id user; id sandbox", "uid=1000(user) gid=1000(user) groups=1000(user)\nuid=1001(sandbox) gid=1001(sandbox) groups=1001(sandbox)"},
		{"getent passwd root user sandbox | cut -d: -f6,7", "/root:/bin/bash\n/home/user:/bin/bash\n/home/sandbox:/bin/bash"},
		{"stat -c '%a %U' /usr/bin/sudo /usr/bin/su /etc/sudoers.d/users /home/user /tmp /root", "4755 root\n4755 root\n440 root\n755 user\n1777 root\n700 root"},
		{"for u in user sandbox; do su - $u -c 'sudo -n id -u' 2>/dev/null; done", "0\n0"},
		{"/usr/sbin/getcap /usr/bin/ping", "/usr/bin/ping cap_net_raw=ep"},
		{"python3 -c 'import IPython; print(IPython.__name__)'; python --version | cut -d. -f1,2", "IPython\nPython 3.11"},
		{"pip --version | cut -d' ' -f1; pip config list | grep -E 'break|cert'", "pip\nglobal.break-system-packages='true'\nglobal.cert='/etc/ssl/certs/ca-certificates.crt'"},
		{"python3 -m venv /tmp/v && /tmp/v/bin/pip --version | cut -d' ' -f1; rm -r /tmp/v", "pip"},
		{"node -p 'Number(process.versions.node.split(\".\")[0]) >= 18'; npm --version; npx --version", "true\n9.2.0\n9.2.0"},
		{"npm config get prefix; npm config get cafile", "/usr/local\n/etc/ssl/certs/ca-certificates.crt"},
		{"cd /usr/share/nodejs/npm/lib/commands && for c in *.js; do node -e \"require('./$c')\" || echo $c; done", ""},
		{"mkdir /tmp/p && cd /tmp/p && npm init -y >/dev/null && npm pkg get version; rm -r /tmp/p", `"1.0.0"`},
		{"for p in bash git curl wget jq unzip xz rsync ps ip lsmod sudo less nano ssh zip; do command -v $p >/dev/null || echo $p; done", ""},
		{"locale charmap", "UTF-8"},
		{"for m in overlay fuse wireguard nf_tables veth bridge virtio_mem; do /sbin/modinfo -k " + kernel + " -F filename $m >/dev/null || echo $m; done", ""},
		{"sh -c 'exit 0'; /usr/sbin/policy-rc.d; echo $?", "101"},
		{"dpkg --audit; dpkg --verify dpkg apt libc6 sudo | grep -v /usr/share/ || true", ""},
		{"ls /boot; ls /var/lib/apt/lists /var/cache/apt/archives; cat /etc/machine-id /etc/resolv.conf", "config-" + kernel + "\n/var/cache/apt/archives:\npartial\n\n/var/lib/apt/lists:\npartial"},
		{"ls /etc/apt/apt.conf.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/99mmdebstrap 2>/dev/null", ""},
		{"dpkg -l initramfs-tools grub-common systemd npm 2>/dev/null | grep ^ii", ""},
		{"openssl version >/dev/null && openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/*.crt 2>&1 | grep -vc OK$; true", hostCAFailures(root)},
	} {
		cmd := exec.Command("chroot", root, "/bin/bash", "-c", c.script)
		cmd.Env = []string{"HOME=/root"}
		for name, value := range GuestEnv() {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output()
		if got := strings.TrimSpace(string(out)); got != c.want {
			t.Errorf("%s\n got: %q\nwant: %q\n%s", c.script, got, c.want, stderr.String())
		}
	}
}

// hostCAFailures is what the last check prints: 0 bad ones, or one complaint
// when the host adds no certificate and the pattern matches no file.
func hostCAFailures(root string) string {
	found, _ := filepath.Glob(filepath.Join(root, "usr/local/share/ca-certificates/*.crt"))
	if len(found) > 0 {
		return "0"
	}
	return fmt.Sprint(2)
}

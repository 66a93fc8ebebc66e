package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/config"
)

// healthy returns a host of files and programs on which everything is fine.
func healthy(t *testing.T) (Host, config.Server) {
	t.Helper()
	root := t.TempDir()
	for path, content := range map[string]string{
		"proc/sys/kernel/osrelease":        "6.1.0-test\n",
		"etc/os-release":                   "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"proc/self/status":                 "Name:\tx\nCapEff:\t000001ffffffffff\n",
		"proc/self/uid_map":                "         0          0 4294967295\n",
		"proc/meminfo":                     "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   8000000 kB\n",
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
		"dev/kvm":                          "",
		"dev/net/tun":                      "",
		"usr/local/share/ca-certificates/deeper/a.crt":   "x",
		"usr/local/share/ca-certificates/not-a-cert.txt": "x",
	} {
		full := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(root, "dev/kvm"), 0o666), os.MkdirAll(filepath.Join(root, "run/ramet"), 0o755)); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(root, "data")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{
		"qemu-system-x86_64": "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)", "qemu-img": "qemu-img version 7.2.22",
		"mmdebstrap": "mmdebstrap 1.3.5", "mkfs.ext4": "mke2fs 1.47.0 (5-Feb-2023)",
		"ramet-runsc": "runsc version ramet-1.2\nspec: 1.1.0\n",
	}
	h := Host{
		Root: root, EUID: 0, Arch: "amd64", HTTP: &http.Client{Timeout: 5 * time.Second},
		Getenv:   func(string) string { return "" },
		LookPath: func(name string) (string, error) { return "/bin/" + name, nil },
		Run: func(_ context.Context, name string, args ...string) (string, error) {
			if v, found := versions[filepath.Base(name)]; found {
				return v, nil
			}
			if name == "apt-get" {
				return "http://mirror.invalid/debian/dists/bookworm/InRelease\n", nil
			}
			return "", nil // apt-helper
		},
	}
	return h, config.Server{Home: home, Driver: "auto", Accel: "auto", GuestCA: "host"}
}

func TestHealthyHost(t *testing.T) {
	h, s := healthy(t)
	r := Run(t.Context(), h, s)
	if len(r.Checks) != len(checks()) {
		t.Fatalf("%d results of %d checks", len(r.Checks), len(checks()))
	}
	for _, c := range r.Checks {
		// What the disk of this machine is like is not this test's matter.
		if c.Status != OK && c.Name != "disk" {
			t.Errorf("%+v", c)
		}
		if c.Summary == "" {
			t.Errorf("%s says nothing", c.Name)
		}
	}
}

// TestFindings changes one thing of a healthy host at a time.
func TestFindings(t *testing.T) {
	write := func(path, content string) func(*testing.T, *Host, *config.Server) {
		return func(t *testing.T, h *Host, _ *config.Server) {
			if err := os.WriteFile(filepath.Join(h.Root, path), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(path string) func(*testing.T, *Host, *config.Server) {
		return func(t *testing.T, h *Host, _ *config.Server) {
			if err := os.RemoveAll(filepath.Join(h.Root, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cgroupsV1 := func(controllers ...string) func(*testing.T, *Host, *config.Server) {
		return func(t *testing.T, h *Host, s *config.Server) {
			remove("sys/fs/cgroup")(t, h, s)
			for _, c := range controllers { // each mounted by itself
				if err := os.MkdirAll(filepath.Join(h.Root, "sys/fs/cgroup", c), 0o755); err != nil {
					t.Fatal(err)
				}
				write("sys/fs/cgroup/"+c+"/cgroup.procs", "1\n")(t, h, s)
			}
		}
	}
	without := func(missing string) func(string) (string, error) {
		return func(name string) (string, error) {
			if filepath.Base(name) == missing {
				return "", os.ErrNotExist
			}
			return "/bin/" + filepath.Base(name), nil
		}
	}
	outputs := func(name, out string, err error) func(*testing.T, *Host, *config.Server) {
		return func(_ *testing.T, h *Host, _ *config.Server) {
			run := h.Run
			h.Run = func(ctx context.Context, got string, args ...string) (string, error) {
				if filepath.Base(got) == name {
					return out, err
				}
				return run(ctx, got, args...)
			}
		}
	}
	for _, c := range []struct {
		name, check string
		change      func(*testing.T, *Host, *config.Server)
		want        Status
		says        string
	}{
		{"arm", "platform", func(_ *testing.T, h *Host, _ *config.Server) { h.Arch = "arm64" }, Fail, "arm64"},
		{"not root", "privileges", func(_ *testing.T, h *Host, _ *config.Server) { h.EUID = 1000 }, Fail, "user 1000"},
		{"few capabilities", "privileges", write("proc/self/status", "CapEff:\t00000000a80425fb\n"), Fail, "CAP_SYS_ADMIN"},
		{"user namespace", "uids", write("proc/self/uid_map", "0 1000 1\n1 100000 65536\n"), Warn, "65537"},
		{"no QEMU", "qemu", func(_ *testing.T, h *Host, _ *config.Server) {
			h.LookPath = func(name string) (string, error) { return "", os.ErrNotExist }
		}, Fail, "not installed"},
		{"old QEMU", "qemu", outputs("qemu-system-x86_64", "QEMU emulator version 5.2.0", nil), Fail, "7.2"},
		{"newer QEMU", "qemu", outputs("qemu-system-x86_64", "QEMU emulator version 10.0.2", nil), OK, "10.0.2"},
		{"QEMU that does not run", "qemu", outputs("qemu-system-x86_64", "", errors.New("exit status 127")), Fail, "does not run"},
		{"old e2fsprogs", "e2fsprogs", outputs("mkfs.ext4", "mke2fs 1.45.5", nil), Fail, "1.46"},
		{"no KVM", "kvm", remove("dev/kvm"), Warn, "no /dev/kvm"},
		{"no KVM but asked for", "kvm", func(t *testing.T, h *Host, s *config.Server) {
			remove("dev/kvm")(t, h, s)
			s.Driver, s.Accel = "qemu", "kvm"
		}, Fail, "no /dev/kvm"},
		{"no KVM with QEMU", "kvm", func(t *testing.T, h *Host, s *config.Server) {
			remove("dev/kvm")(t, h, s)
			s.Driver = "qemu"
		}, Warn, "by emulation"},
		{"no KVM and none needed", "kvm", func(t *testing.T, h *Host, s *config.Server) {
			remove("dev/kvm")(t, h, s)
			s.Driver = "gvisor"
		}, OK, "not needed"},
		{"KVM of root alone", "kvm", func(t *testing.T, h *Host, _ *config.Server) {
			if err := os.Chmod(filepath.Join(h.Root, "dev/kvm"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, Warn, "chmod 660"},
		{"no QEMU and none needed", "qemu", func(_ *testing.T, h *Host, s *config.Server) {
			s.Driver = "gvisor"
			h.LookPath = without("qemu-system-x86_64")
		}, Warn, "does without it"},
		{"no runsc", "gvisor", func(_ *testing.T, h *Host, _ *config.Server) { h.LookPath = without("ramet-runsc") }, Warn, "not beside this program"},
		{"no runsc but asked for", "gvisor", func(_ *testing.T, h *Host, s *config.Server) {
			s.Driver = "gvisor"
			h.LookPath = without("ramet-runsc")
		}, Fail, "make build"},
		{"another's runsc", "gvisor", outputs("ramet-runsc", "runsc version release-20260101.0\n", nil), Warn, "does not belong"},
		{"a runsc that does not run", "gvisor", outputs("ramet-runsc", "", errors.New("exit status 127")), Warn, "does not run"},
		{"no tun", "gvisor", remove("dev/net/tun"), Warn, "modprobe tun"},
		{"KVM that works", "kvm", write("run/ramet/kvm-probe.json", `{"usable":true,"reason":"it booted"}`), OK, "booted under KVM"},
		{"KVM that does not boot", "kvm", write("run/ramet/kvm-probe.json", `{"usable":false,"reason":"nothing came within 8 s"}`), Warn, "nothing came within 8 s"},
		{"a broken probe", "kvm", write("run/ramet/kvm-probe.json", `{`), Warn, "cannot be read"},
		{"emulation asked for", "kvm", func(_ *testing.T, _ *Host, s *config.Server) { s.Accel = "tcg" }, Warn, "emulation"},
		{"cgroups without memory", "cgroups", write("sys/fs/cgroup/cgroup.controllers", "cpu pids"), Warn, "memory"},
		{"no cgroups", "cgroups", remove("sys/fs/cgroup"), Warn, "no cgroups; in their place"},
		{"cgroups v1", "cgroups", cgroupsV1("memory", "pids", "cpu"), OK, "cgroups v1: each machine has its limit of memory and processes"},
		{"cgroups v1 without pids", "cgroups", cgroupsV1("memory", "cpu"), Warn, "cgroups v1 without pids; in their place"},
		{"little memory", "memory", write("proc/meminfo", "MemTotal: 2000000 kB\nMemAvailable: 500000 kB\n"), Fail, "488 MB"},
		{"some memory", "memory", write("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 2000000 kB\n"), Warn, "1.9 GB"},
		{"a proxy that is none", "proxy", func(_ *testing.T, h *Host, _ *config.Server) {
			h.Getenv = func(k string) string { return map[string]string{"HTTPS_PROXY": "nonsense"}[k] }
		}, Warn, "HTTPS_PROXY"},
		{"a proxy", "proxy", func(_ *testing.T, h *Host, _ *config.Server) {
			h.Getenv = func(k string) string { return map[string]string{"https_proxy": "http://user:secret@10.0.0.1:3128"}[k] }
		}, OK, "https_proxy"},
		{"certificates that are not there", "certificates", func(_ *testing.T, _ *Host, s *config.Server) { s.GuestCA = "/nowhere/ca.pem" }, Fail, "guest"},
		{"mirror that is down", "packages", outputs("apt-helper", "E: Could not connect\n", errors.New("exit status 100")), Fail, "Could not connect"},
		{"no mirror", "packages", outputs("apt-get", "", nil), Fail, "no package mirror"},
		{"a server that died", "server", func(t *testing.T, _ *Host, s *config.Server) {
			info := config.ServerInfo{PID: 1, BootID: "another"}
			if err := info.Write(config.Home(s.Home)); err != nil {
				t.Fatal(err)
			}
		}, Warn, "ended without saying so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, s := healthy(t)
			c.change(t, &h, &s)
			r := Run(t.Context(), h, s)
			found := false
			for _, got := range r.Checks {
				if got.Name != c.check {
					continue
				}
				found = true
				if got.Status != c.want || !strings.Contains(got.Summary+got.Fix, c.says) {
					t.Errorf("%+v, want %s with %q", got, c.want, c.says)
				}
				if strings.Contains(got.Summary, "secret") {
					t.Errorf("a password is shown: %+v", got)
				}
			}
			if !found {
				t.Fatalf("no check %s", c.check)
			}
			if c.want == Fail && r.OK {
				t.Error("the report is ok although a check failed")
			}
		})
	}
}

func TestServerThatRuns(t *testing.T) {
	healthyNow := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthyNow {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "ok")
	}))
	defer srv.Close()
	h, s := healthy(t)
	info, err := config.ThisProcess(srv.URL, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Write(config.Home(s.Home)); err != nil {
		t.Fatal(err)
	}
	if f := checkServer(t.Context(), h, s); f.status != OK || !strings.Contains(f.summary, "1.2.3") {
		t.Errorf("%+v", f)
	}
	healthyNow = false
	if f := checkServer(t.Context(), h, s); f.status != Fail {
		t.Errorf("%+v", f)
	}
}

func TestRunProgramBoundsItsOutput(t *testing.T) {
	out, err := RunProgram(t.Context(), "head", "-c", "1000000", "/dev/zero")
	if err != nil || len(out) != maxOutput {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

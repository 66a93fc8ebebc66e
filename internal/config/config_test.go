package config

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

// sources returns Sources that see only env, flags and the user's file.
func sources(t *testing.T, env, flags map[string]string, userFile string) Sources {
	t.Helper()
	dir := t.TempDir()
	if userFile != "" {
		path := filepath.Join(dir, ".config", "ramet", "config.yaml")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(userFile), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return Sources{UserDir: dir, Hostname: "Host-1.example.com", Flags: flags, Getenv: func(k string) (string, bool) {
		v, found := env[k]
		return v, found
	}}
}

func TestPrecedence(t *testing.T) {
	const file = "listen: 127.0.0.1:1\nregion: file\nlog_level: warn\n"
	env := map[string]string{"RAMET_LISTEN": "127.0.0.1:2", "RAMET_REGION": "env", "RAMET_NODE": ""}
	flags := map[string]string{"listen": "127.0.0.1:3"}
	r, err := Load(sources(t, env, flags, file))
	if err != nil {
		t.Fatal(err)
	}
	s := r.Server()
	if s.Listen != "127.0.0.1:3" || s.Region != "env" || s.LogLevel != "warn" || s.Driver != "auto" || s.Node != "host-1" {
		t.Errorf("%+v", s)
	}
	from := map[string]string{}
	for _, v := range r.Values() {
		from[v.Setting.Key] = v.Source
	}
	if from["listen"] != "flag --listen" || from["region"] != "environment RAMET_REGION" || !strings.HasSuffix(from["log_level"], "config.yaml") || from["driver"] != "default" {
		t.Errorf("%v", from)
	}
	if c := r.Client(); c.URL != "http://127.0.0.1:3" || c.Home != DefaultHome {
		t.Errorf("%+v", c)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		want string
	}{
		"listen without port":   {env: map[string]string{"RAMET_LISTEN": "localhost"}, want: "HOST:PORT"},
		"port too large":        {env: map[string]string{"RAMET_LISTEN": "127.0.0.1:70000"}, want: "0 to 65535"},
		"url without scheme":    {env: map[string]string{"RAMET_URL": "127.0.0.1:7070"}, want: "must be a URL"},
		"unknown driver":        {env: map[string]string{"RAMET_DRIVER": "docker"}, want: "one of: auto, qemu, gvisor"},
		"unknown isolation":     {env: map[string]string{"RAMET_MIN_ISOLATION": "vm"}, want: "kvm, gvisor or emulated"},
		"not a bool":            {env: map[string]string{"RAMET_NO_AUTH": "perhaps"}, want: "true or false"},
		"not a range":           {env: map[string]string{"RAMET_ALLOW_PRIVATE": "10.0.0.0/33"}, want: "10.0.0.0/33"},
		"relative certificates": {env: map[string]string{"RAMET_GUEST_CA": "ca.pem"}, want: "absolute"},
		"node with spaces":      {env: map[string]string{"RAMET_NODE": "a b"}, want: "RAMET_NODE"},
		"pool too large":        {env: map[string]string{"RAMET_POOL_SIZE": "100000"}, want: "0 to 1024"},
		"pool of words":         {env: map[string]string{"RAMET_POOL_SIZE": "many"}, want: "must be auto"},
		"shape of three CPUs":   {env: map[string]string{"RAMET_POOL_SHAPES": "3x1024"}, want: "a shape is"},
		"shape without memory":  {env: map[string]string{"RAMET_POOL_SHAPES": "2x"}, want: "a shape is"},
		"unknown key":           {file: "lisen: x\n", want: `no setting "lisen"`},
		"nested value":          {file: "listen:\n  host: x\n", want: "plain value"},
		"no value":              {file: "listen:\n", want: "has no value"},
		"not a mapping":         {file: "[1, 2]\n", want: "YAML mapping"},
		"twice":                 {file: "region: a\nregion: b\n", want: "already defined"},
		"too large":             {file: "region: " + strings.Repeat("x", 2<<20), want: "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(sources(t, c.env, nil, c.file))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestAllowPrivate(t *testing.T) {
	r, err := Load(sources(t, nil, nil, "allow_private: [10.1.2.3/16, 192.0.2.7, 'fd00::/8']\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("fd00::/8")}
	if d := cmp.Diff(want, r.Server().AllowPrivate, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

func TestMinIsolation(t *testing.T) {
	for text, want := range map[string]sandbox.Isolation{"": "", "gvisor": sandbox.IsolationGVisor, "kvm": sandbox.IsolationKVM} {
		r, err := Load(sources(t, map[string]string{"RAMET_MIN_ISOLATION": text}, nil, ""))
		if err != nil || r.Server().MinIsolation != want {
			t.Errorf("%q: %v, %v", text, r, err)
		}
	}
	// A flag without a value takes away what a file says.
	r, err := Load(sources(t, nil, map[string]string{"min_isolation": ""}, "min_isolation: kvm\n"))
	if err != nil || r.Server().MinIsolation != "" {
		t.Errorf("%v, %v", r, err)
	}
}

func TestPool(t *testing.T) {
	r, err := Load(sources(t, nil, nil, "pool_shapes: [4x2048, 2x1024, 1x512x8192, 4x2048]\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Shape{{VCPUs: 4, MemoryMB: 2048, DiskMB: 4096}, {VCPUs: 1, MemoryMB: 512, DiskMB: 8192}}
	if d := cmp.Diff(want, r.Server().PoolShapes); d != "" {
		t.Error(d)
	}
	if n := r.Server().PoolSize; n >= 0 {
		t.Errorf("the size is %d, want one that memory decides", n)
	}
	if r, err = Load(sources(t, map[string]string{"RAMET_POOL_SIZE": "12"}, nil, "")); err != nil || r.Server().PoolSize != 12 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestFlagArgs shows that a server started again with these flags has the same
// settings whatever the environment says.
func TestFlagArgs(t *testing.T) {
	first, err := Load(sources(t, map[string]string{"RAMET_NO_AUTH": "1", "RAMET_ALLOW_PRIVATE": "10.0.0.0/8", "RAMET_HOME": "/srv/x"}, nil, "region: eu\n"))
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{}
	for _, a := range first.FlagArgs() {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		for _, s := range Settings() {
			if s.Flag() == name {
				flags[s.Key] = value
			}
		}
	}
	again, err := Load(sources(t, map[string]string{"RAMET_REGION": "other", "RAMET_ALLOW_PRIVATE": "192.168.0.0/16"}, flags, ""))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first.Server(), again.Server(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

func TestURLComesFromTheRunningServer(t *testing.T) {
	home := t.TempDir()
	info, err := ThisProcess("http://127.0.0.1:9999", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := info.Write(Home(home)); err != nil {
		t.Fatal(err)
	}
	r, err := Load(sources(t, map[string]string{"RAMET_HOME": home}, nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Client().URL; got != "http://127.0.0.1:9999" {
		t.Errorf("URL %s", got)
	}
	r, err = Load(sources(t, map[string]string{"RAMET_HOME": home, "RAMET_URL": "https://example.com/"}, nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Client().URL; got != "https://example.com" {
		t.Errorf("URL %s", got)
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "10.0.0.1:1": false, "example.com:1": false, "nonsense": false,
	} {
		if got := Loopback(addr); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
}

func TestListenURL(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7070": "http://127.0.0.1:7070", "0.0.0.0:1": "http://127.0.0.1:1", ":1": "http://127.0.0.1:1",
		"[::]:1": "http://[::1]:1", "10.0.0.1:1": "http://10.0.0.1:1",
	} {
		if got := ListenURL(addr, false); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
		if got, want := ListenURL(addr, true), strings.Replace(want, "http", "https", 1); got != want {
			t.Errorf("%s with TLS: %s, want %s", addr, got, want)
		}
	}
}

func TestServerProcess(t *testing.T) {
	info, err := ThisProcess("http://127.0.0.1:1", "1")
	if err != nil {
		t.Fatal(err)
	}
	if !info.Running() {
		t.Error("this process does not run")
	}
	for name, change := range map[string]func(*ServerInfo){
		"another process with the pid": func(i *ServerInfo) { i.StartTicks++ },
		"before the last boot":         func(i *ServerInfo) { i.BootID = "another" },
		"no pid":                       func(i *ServerInfo) { i.PID = 0 },
		"negative pid":                 func(i *ServerInfo) { i.PID = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			i := info
			change(&i)
			p, err := i.Open()
			if err == nil {
				p.Close()
			}
			if !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestSignalAndWait(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ticks, err := startTicks(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	info := ServerInfo{PID: cmd.Process.Pid, StartTicks: ticks, BootID: boot}
	p, err := info.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if done, err := p.Wait(time.Millisecond); done || err != nil {
		t.Errorf("ended before the signal: %t, %v", done, err)
	}
	if err := p.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if done, err := p.Wait(10 * time.Second); !done || err != nil {
		t.Errorf("still runs: %v", err)
	}
	cmd.Wait() // its error is the signal
	if info.Running() {
		t.Error("it is said to run after its end")
	}
}

// FuzzParseFile reads any bytes as a config file.
func FuzzParseFile(f *testing.F) {
	f.Add([]byte("listen: x\nallow_private: [a, b]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := parseFile("x", b)
		if err != nil && values != nil {
			t.Error("both values and an error")
		}
	})
}

func TestParseTime(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"5m": 5 * time.Minute, "90s": 90 * time.Second, "12h": 12 * time.Hour, "30d": 720 * time.Hour, "never": 0, "0": 0, "3660d": 3660 * 24 * time.Hour,
	} {
		if got, err := ParseTime(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "0d", "-3d", "3661d", "9223372036854775807d", "10ms", "-5h", "1e9h", "30 d", "soon", "5"} {
		if got, err := ParseTime(in); err == nil {
			t.Errorf("%q: %s", in, got)
		}
	}
}

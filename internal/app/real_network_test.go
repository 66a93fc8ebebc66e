//go:build integration

package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRealGuestReachesTheInternetOnlyWithEgress(t *testing.T) {
	s := realServer(t)
	on, off := s.create(t, nil), s.create(t, obj{"egress": false})
	const resolve = "getent hosts deb.debian.org >/dev/null && echo resolved"
	if r := on.bash(resolve); r.stdout != "resolved\n" {
		t.Errorf("with egress a name does not resolve: %+v", r)
	}
	if r := off.bash("timeout 5 " + resolve); r.stdout != "" {
		t.Errorf("without egress a name resolves: %+v", r)
	}
	if got := off.mustPython("print(1)"); got != "1\n" {
		t.Errorf("without egress Python says %q", got)
	}
	s.call(t, "PUT", off.path("/files?path=/root/f"), strings.NewReader("data"), nil)
	if got := off.mustBash("cat /root/f"); got != "data" {
		t.Errorf("without egress files say %q", got)
	}
}

func TestRealGuestCannotReachPrivatePlaces(t *testing.T) {
	s := realServer(t)
	b := s.create(t, nil)
	// The server's own port, on every address that a guest might try.
	port := s.url[strings.LastIndexByte(s.url, ':')+1:]
	for _, host := range []string{
		"127.0.0.1", "192.168.127.1", "192.168.127.254", "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1",
		"100.64.0.1", "0.0.0.0", "2130706433", "[::ffff:127.0.0.1]", "[::1]", "[fd00::1]",
	} {
		r := b.bash("curl -s -o /dev/null --noproxy '*' --connect-timeout 3 -w '%{http_code}' http://" + host + ":" + port + "/v1/healthz")
		if strings.Contains(r.stdout, "200") {
			t.Errorf("the guest reached the host at %s", host)
		}
	}
	begin := time.Now()
	b.bash("curl -s --connect-timeout 10 http://10.0.0.1/")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a denied connection took %s to fail", took)
	}
}

func TestRealPackageManagersWork(t *testing.T) {
	b := realServer(t).create(t, obj{"memory_mb": 2048})
	b.mustPython("try:\n import six\n print('there')\nexcept ImportError: print('missing')")
	b.must(b.run("bash", "pip install -q six 2>&1", obj{"timeout_s": 240}))
	if got := b.mustPython("import six; print(six.__name__)"); got != "six\n" {
		t.Errorf("the live interpreter sees %q after pip install", got)
	}
	b.must(b.run("bash", "mkdir -p /root/n && cd /root/n && npm install --silent is-number@7.0.0 2>&1 && node -e 'console.log(require(\"is-number\")(5))'", obj{"timeout_s": 240}))
	b.must(b.run("bash", "apt-get update -qq 2>&1 && apt-get install -y -qq hello 2>&1 && hello", obj{"timeout_s": 300}))
}

// TestRealGuestClonesFromANamedPrivateRange serves a repository in a network
// namespace of its own, in a private range that the server's settings open.
func TestRealGuestClonesFromANamedPrivateRange(t *testing.T) {
	s := realServer(t)
	repo := filepath.Join(t.TempDir(), "repo")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run("git", "init", "-q", repo)
	if err := os.WriteFile(filepath.Join(repo, "README"), []byte("cloned\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run("git", "-C", repo, "add", "README")
	run("git", "-C", repo, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "first")

	const ns = "ramet-test-git"
	run("ip", "netns", "add", ns)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
	run("ip", "link", "add", "ramet-t0", "type", "veth", "peer", "name", "ramet-t1", "netns", ns)
	t.Cleanup(func() { exec.Command("ip", "link", "del", "ramet-t0").Run() })
	run("ip", "addr", "add", "10.213.0.1/24", "dev", "ramet-t0")
	run("ip", "link", "set", "ramet-t0", "up")
	run("ip", "-n", ns, "addr", "add", "10.213.0.2/24", "dev", "ramet-t1")
	run("ip", "-n", ns, "link", "set", "ramet-t1", "up")
	run("ip", "-n", ns, "link", "set", "lo", "up")
	daemon := exec.Command("ip", "netns", "exec", ns, "git", "-c", "safe.directory=*", "daemon", "--reuseaddr",
		"--export-all", "--base-path="+filepath.Dir(repo), "--listen=10.213.0.2", "--port=9418")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })

	b := s.create(t, nil)
	eventually(t, 20*time.Second, "git clone works", func() bool {
		return b.bash("cd /root && rm -rf repo && git clone -q git://10.213.0.2/repo && cat repo/README").stdout == "cloned\n"
	})
	if r := b.bash("timeout 5 curl -s --connect-timeout 3 http://10.213.0.1:1/"); r.code == 0 {
		t.Error("an address of the host itself was reached")
	}
}

func TestRealGuestWithoutItsInterfaceStillAnswers(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustBash("ip link set eth0 down; ip link set lo down")
	if got := b.mustPython("print('still here')"); got != "still here\n" {
		t.Errorf("got %q", got)
	}
}

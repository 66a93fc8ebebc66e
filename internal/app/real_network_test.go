//go:build integration

package app_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	allowed := newPrivateNet(t, "ramet-test-a", "10.213.0")
	closed := newPrivateNet(t, "ramet-test-b", "10.214.0")
	var hits atomic.Int32
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		fmt.Fprint(w, "reached")
	})
	ln, err := net.Listen("tcp", ":0") // every address of this host
	if err != nil {
		t.Fatal(err)
	}
	serveHTTP(t, ln, answer)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	inside := closed.listen(t)
	serveHTTP(t, inside, answer)

	targets := []string{inside.Addr().String()}
	for _, host := range []string{
		"127.0.0.1", "192.168.127.1", "192.168.127.254", "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1",
		"100.64.0.1", "0.0.0.0", "2130706433", "[::ffff:127.0.0.1]", "[::1]", "[fd00::1]",
	} {
		targets = append(targets, host+":"+port)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	// Its addresses in the opened range are the host's own all the same.
	reachable := []string{inside.Addr().String(), net.JoinHostPort(allowed.host, port)}
	for _, a := range own {
		ip := a.(*net.IPNet).IP
		if !ip.IsLinkLocalUnicast() {
			reachable = append(reachable, net.JoinHostPort(ip.String(), port))
		}
	}
	for _, to := range reachable {
		resp, err := http.Get("http://" + to)
		if err != nil {
			t.Fatalf("the host itself cannot reach %s, so the test says nothing: %v", to, err)
		}
		resp.Body.Close()
	}
	hits.Store(0)

	b := s.create(t, nil)
	var script strings.Builder
	for _, to := range append(targets, reachable...) {
		// All at once: what is dropped and not refused takes its whole time to fail.
		fmt.Fprintf(&script, "(curl -s --noproxy '*' --connect-timeout 3 -m 5 http://%s/ && echo ' at %s') &\n", to, to)
	}
	if got := b.mustBash(script.String() + "wait; echo tried"); got != "tried\n" {
		t.Errorf("from the guest: %s", got)
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d connections came out of the guest", n)
	}
	begin := time.Now()
	b.bash("curl -s --connect-timeout 10 http://10.0.0.1/")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("a denied connection took %s to fail", took)
	}
}

func TestRealDownloadAfterARestore(t *testing.T) {
	s := realServer(t)
	private := newPrivateNet(t, "ramet-test-a", "10.213.0")
	data := make([]byte, 4<<20)
	rand.Read(data)
	sum := sha256.Sum256(data)
	ln := private.listen(t)
	serveHTTP(t, ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(data) }))
	// All are restored from one snapshot, so each has to find its own connection whole.
	var wg sync.WaitGroup
	for range 3 {
		b := s.create(t, nil)
		wg.Go(func() {
			for range 2 {
				r := b.bash("set -o pipefail; curl -sSf --noproxy '*' http://" + ln.Addr().String() + "/ | sha256sum | cut -d' ' -f1")
				if strings.TrimSpace(r.stdout) != hex.EncodeToString(sum[:]) {
					t.Errorf("the guest downloaded something else: %+v", r)
				}
			}
		})
	}
	wg.Wait()
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

	private := newPrivateNet(t, "ramet-test-a", "10.213.0")
	daemon := exec.Command("ip", "netns", "exec", private.ns, "git", "-c", "safe.directory=*", "daemon", "--reuseaddr",
		"--export-all", "--base-path="+filepath.Dir(repo), "--listen="+private.guest, "--port=9418")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })

	b := s.create(t, nil)
	eventually(t, 20*time.Second, "git clone works", func() bool {
		return b.bash("cd /root && rm -rf repo && git clone -q git://10.213.0.2/repo && cat repo/README").stdout == "cloned\n"
	})
}

func TestRealGuestWithoutItsInterfaceStillAnswers(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustBash("ip link set eth0 down; ip link set lo down")
	if got := b.mustPython("print('still here')"); got != "still here\n" {
		t.Errorf("got %q", got)
	}
}

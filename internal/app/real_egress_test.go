//go:build integration

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/worker"
)

// egressAddr is an address of the host that only these tests use and open.
const egressAddr = "10.213.7.1"

// egressBox is a machine with a policy, next to servers of the test.
type egressBox struct {
	t        *testing.T
	instance *worker.Instance
	denials  <-chan sandbox.EgressDenial
	http     string // port of a server for HTTP
	https    string // and of one for TLS
}

func newEgressBox(t *testing.T, p sandbox.EgressPolicy) *egressBox {
	t.Helper()
	if out, err := exec.Command("ip", "addr", "add", egressAddr+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("add an address: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "addr", "del", egressAddr+"/32", "dev", "lo").Run() })
	b := &egressBox{t: t, http: egressWeb(t, (*httptest.Server).Start), https: egressWeb(t, (*httptest.Server).StartTLS)}

	home := testHome(t)
	cfg := config.Server{
		Home: home, Listen: "127.0.0.1:0", Driver: DriverOfTests(), Accel: "auto", LogFormat: "text", LogLevel: "info",
		GuestCA: "host", Region: "local", Node: "test", Template: "default",
	}
	if err := Prepare(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	upstream := egressDNS(t)
	w, err := worker.New(t.Context(), worker.Config{
		Dir: filepath.Join(home, "egress"), Driver: a.driver, Templates: a.workerTemplate, SnapshotDir: filepath.Join(home, "egress-snapshots"), Log: slog.New(slog.DiscardHandler),
		Network: network.New(network.Config{
			AllowedPrivate: []netip.Prefix{netip.MustParsePrefix(egressAddr + "/32")},
			Upstreams:      func() ([]netip.AddrPort, error) { return []netip.AddrPort{upstream}, nil },
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	b.denials = w.Denials()
	policy, err := network.ParsePolicy(true, p)
	if err != nil {
		t.Fatal(err)
	}
	b.instance, err = w.Start(t.Context(), worker.Request{
		Instance: sandbox.NewInstanceID(), Template: "default", Policy: policy,
		Shape:    sandbox.Shape{VCPUs: sandbox.DefaultVCPUs, MemoryMB: sandbox.DefaultMemoryMB, DiskMB: sandbox.DefaultDiskMB},
		Identity: worker.Identity{Hostname: "egress", MachineID: string(sandbox.NewInstanceID())},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // Close would leave it running
		if err := w.Stop(context.WithoutCancel(t.Context()), b.instance.ID); err != nil {
			t.Error(err)
		}
	})
	return b
}

// testHome is a data directory with the templates of RAMET_TEST_HOME.
func testHome(t *testing.T) string {
	t.Helper()
	shared := os.Getenv("RAMET_TEST_HOME")
	if shared == "" {
		shared = filepath.Join(os.TempDir(), "ramet-test-home")
	}
	if err := os.MkdirAll(filepath.Join(shared, "templates"), 0o711); err != nil {
		t.Fatal(err)
	}
	// Machines run under uids of their own and pass through it.
	home := t.TempDir()
	for dir := home; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(shared, "templates"), filepath.Join(home, "templates")); err != nil {
		t.Fatal(err)
	}
	return home
}

// egressWeb serves the host that it is asked for, redirects, and downloads.
func egressWeb(t *testing.T, start func(*httptest.Server)) string {
	t.Helper()
	l, err := net.Listen("tcp4", egressAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Has("to"):
			http.Redirect(w, r, q.Get("to"), http.StatusFound)
		case q.Has("large"):
			block := make([]byte, 1<<20)
			for range 48 {
				w.Write(block)
			}
		default:
			fmt.Fprint(w, "host ", r.Host)
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	start(s)
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// egressDNS resolves all names to the test's address, but rebound.test.
func egressDNS(t *testing.T) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			addr := egressAddr
			if q.Question[0].Name == "rebound.test." {
				addr = "10.0.0.1"
			}
			rr, err := dns.NewRR(q.Question[0].Name + " 60 IN A " + addr)
			if err == nil {
				reply.Answer = append(reply.Answer, rr)
			}
		}
		w.WriteMsg(reply)
	})}
	done := make(chan struct{})
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() {
		defer close(done)
		s.ActivateAndServe()
	}()
	<-started
	t.Cleanup(func() {
		s.Shutdown()
		<-done
	})
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// bash runs code in the guest and returns what it prints.
func (b *egressBox) bash(code string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	client, err := b.instance.Guest(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	stream, err := client.Exec().Run(ctx, &agentv1.RunRequest{RunId: string(sandbox.NewInstanceID()), Language: "bash", Code: code})
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for stream.Receive() {
		out.Write(stream.Msg().GetStdout())
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		b.t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// curl returns the body, or nothing when it fails.
func (b *egressBox) curl(args string) string {
	b.t.Helper()
	return b.bash("curl -sk --noproxy '*' --connect-timeout 5 --max-time 10 " + args)
}

func (b *egressBox) setPolicy(p sandbox.EgressPolicy) {
	b.t.Helper()
	policy, err := network.ParsePolicy(true, p)
	if err != nil {
		b.t.Fatal(err)
	}
	b.instance.SetPolicy(policy)
}

func TestRealEgressRules(t *testing.T) {
	b := newEgressBox(t, sandbox.EgressPolicy{Allow: []string{"good.test", "rebound.test"}})
	refused := func(what, args string) {
		t.Helper()
		if got := b.curl(args); got != "" {
			t.Errorf("%s: the guest got %q", what, got)
		}
	}
	// The forms of an address that the C library takes all end as the one.
	a := netip.MustParseAddr(egressAddr).As4()
	number := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	forms := []string{
		egressAddr, fmt.Sprint(number), fmt.Sprintf("0x%x", number), fmt.Sprintf("0%o.%d.%d.%d", a[0], a[1], a[2], a[3]),
		fmt.Sprintf("%d.%d.%d", a[0], a[1], int(a[2])<<8|int(a[3])), "[::ffff:" + egressAddr + "]",
	}
	for _, form := range forms {
		refused("address "+form, "http://"+form+":"+b.http)
		refused("address and spoofed host", "-H 'Host: good.test' http://"+form+":"+b.http)
	}
	refused("spoofed server name at an unknown address", "--resolve good.test:"+b.https+":"+egressAddr+" https://good.test:"+b.https)

	if got := b.bash("getent hosts evil.test; getent ahostsv4 $(head -c 40 /dev/urandom | base32 -w 50 | tr -d =).evil.test"); got != "" {
		t.Errorf("evil.test resolves: %s", got)
	}
	if d := <-b.denials; d.Rule != "allow list" {
		t.Errorf("denial %+v", d)
	}
	if got := b.curl("http://good.test:" + b.http); got != "host good.test:"+b.http {
		t.Fatalf("good.test: %q", got)
	}
	if got := b.curl("https://GOOD.test:" + b.https); !strings.EqualFold(got, "host good.test:"+b.https) {
		t.Fatalf("good.test over TLS: %q", got)
	}
	// The address is known now: the name that is shown decides.
	refused("spoofed host", "-H 'Host: evil.test' http://good.test:"+b.http)
	refused("other server name", "--resolve evil.test:"+b.https+":"+egressAddr+" https://evil.test:"+b.https)
	refused("redirect", "-L 'http://good.test:"+b.http+"/?to=http://evil.test:"+b.http+"'")
	refused("rebinding", "http://rebound.test:"+b.http)
	if got := b.bash(`python3 -c '
import socket
for port in 53, 853:
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        s = socket.socket(socket.AF_INET, kind); s.settimeout(5)
        try:
            s.connect(("` + egressAddr + `", port)); s.send(b"x"); s.recv(1); print("answer")
        except ConnectionRefusedError: print("refused")
'`); got != strings.TrimSpace(strings.Repeat("refused\n", 4)) {
		t.Errorf("another name server: %q", got)
	}

	// A change cuts what is open and no longer allowed.
	got := b.bash(`python3 -c '
import socket
s = socket.create_connection(("good.test", ` + b.http + `))
s.sendall(b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
print(s.recv(12).decode())
open("/tmp/ready", "w").close()
try:
    while s.recv(4096): pass
    print("end")
except ConnectionResetError: print("reset")
' > /tmp/log & while [ ! -e /tmp/ready ]; do sleep 0.05; done; echo ready`)
	if got != "ready" {
		t.Fatalf("open a connection: %q", got)
	}
	b.setPolicy(sandbox.EgressPolicy{Deny: []string{"good.test"}})
	if got := b.bash("for i in $(seq 100); do grep -q reset /tmp/log && break; sleep 0.05; done; tail -n 1 /tmp/log"); got != "reset" {
		t.Errorf("the connection ended with %q", got)
	}
	refused("denied", "http://good.test:"+b.http)
	if got := b.curl("http://evil.test:" + b.http); got != "host evil.test:"+b.http {
		t.Errorf("evil.test after it is allowed: %q", got)
	}
	// Without rules all forms of the address lead there, so it was the rules.
	b.setPolicy(sandbox.EgressPolicy{})
	for _, form := range forms {
		if got := b.curl("http://" + form + ":" + b.http); !strings.HasPrefix(got, "host ") {
			t.Errorf("address %s without rules: %q", form, got)
		}
	}
	b.setPolicy(sandbox.EgressPolicy{Allow: []string{"*.test"}, Deny: []string{"0.0.0.0/0"}, Order: sandbox.EgressAllowFirst})
	if got := b.curl("http://good.test:" + b.http); got != "host good.test:"+b.http {
		t.Errorf("the order of E2B: %q", got)
	}
}

// TestRealDownloadsUseLargeSegments also logs what they gain.
func TestRealDownloadsUseLargeSegments(t *testing.T) {
	VirtualMachineOnly(t, "gVisor's stack has no such setting of a route")
	b := newEgressBox(t, sandbox.EgressPolicy{})
	if got := b.bash("ip route show default"); !strings.Contains(got, "advmss 15960") {
		t.Errorf("route %q", got)
	}
	download := func() string {
		return b.curl("-o /dev/null -w '%{speed_download}' 'http://good.test:" + b.http + "/?large'")
	}
	download()
	for range 3 {
		large := download()
		b.bash("ip route change default via 192.168.127.1")
		small := download()
		b.bash("ip route change default via 192.168.127.1 advmss 15960")
		t.Logf("bytes per second: %s, without advmss %s", large, small)
	}
}

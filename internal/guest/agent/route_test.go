package agent

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSetDefaultRoute runs in a network namespace of its own, on a thread that
// ends with the test.
func TestSetDefaultRoute(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("needs iproute2")
	}
	runtime.LockOSThread() // and never unlock it: the thread is thrown away
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(ip, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if err := setDefaultRoute(netip.MustParseAddr("192.168.127.1"), 15960); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without a network: %v", err)
	}
	run("link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
	run("link", "set", "peer0", "up")
	run("addr", "add", "192.168.127.2/24", "dev", "eth0")
	run("link", "set", "eth0", "up")
	for range 2 { // replaced when it is there
		if err := setDefaultRoute(netip.MustParseAddr("192.168.127.1"), 15960); err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(run("-4", "route", "show", "default"))
		if want := "default via 192.168.127.1 dev eth0 advmss 15960"; strings.Join(got, " ") != want {
			t.Errorf("route %q, want %q", got, want)
		}
	}
}

//go:build integration

package app_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// privateNet is a network namespace that this host reaches over a private range.
type privateNet struct {
	ns          string
	host, guest string // addresses of this host's end and of the namespace
}

// newPrivateNet makes one; subnet is the first three numbers of a /24.
func newPrivateNet(t *testing.T, ns, subnet string) *privateNet {
	t.Helper()
	n := &privateNet{ns: ns, host: subnet + ".1", guest: subnet + ".2"}
	outer, inner := "rt"+ns[len(ns)-1:]+"0", "rt"+ns[len(ns)-1:]+"1"
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
	ip("netns add " + ns)
	t.Cleanup(func() { ip("netns del " + ns) })
	ip("link add " + outer + " type veth peer name " + inner + " netns " + ns)
	t.Cleanup(func() { ip("link del " + outer) })
	ip("addr add " + n.host + "/24 dev " + outer)
	ip("link set " + outer + " up")
	ip("-n " + ns + " addr add " + n.guest + "/24 dev " + inner)
	ip("-n " + ns + " link set " + inner + " up")
	ip("-n " + ns + " link set lo up")
	return n
}

// listen listens on the namespace's address.
func (n *privateNet) listen(t *testing.T) net.Listener {
	t.Helper()
	type outcome struct {
		ln  net.Listener
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		// The thread that enters the namespace ends with this goroutine, because it
		// stays locked to it; the socket stays in the namespace.
		runtime.LockOSThread()
		f, err := os.Open("/run/netns/" + n.ns)
		if err == nil {
			err = errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close())
		}
		var ln net.Listener
		if err == nil {
			ln, err = net.Listen("tcp", n.guest+":0")
		}
		done <- outcome{ln, err}
	}()
	o := <-done
	if o.err != nil {
		t.Fatalf("listen in the namespace %s: %v", n.ns, o.err)
	}
	return o.ln
}

// serveHTTP serves on ln until the test ends.
func serveHTTP(t *testing.T, ln net.Listener, h http.Handler) {
	t.Helper()
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Serve(ln)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
}

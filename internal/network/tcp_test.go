package network

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"ramet.dev/ramet/internal/network/layout"
)

func TestTCPBothWaysWithHalfClose(t *testing.T) {
	// The server answers only after the guest's end of stream, so this works
	// only if a half-close is passed on and the other direction stays open.
	addr := serveTCP(t, func(c *net.TCPConn) {
		sum := sha256.New()
		n, err := io.Copy(sum, c)
		fmt.Fprintf(c, "%d %v %x", n, err, sum.Sum(nil))
	})
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	c := g.dial(addr)
	data := make([]byte, 3<<20)
	rand.Read(data)
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d <nil> %x", len(data), sha256.Sum256(data)); string(got) != want {
		t.Errorf("server saw %s, want %s", got, want)
	}
}

func TestTCPSegmentsFitTheGuest(t *testing.T) {
	data := make([]byte, 3<<20)
	rand.Read(data)
	addr := serveTCP(t, func(c *net.TCPConn) { c.Write(data) })
	for _, mtu := range []int64{layout.MTU, layout.ReceiveMTU} {
		g := newGuestMTU(t, Config{AllowedPrivate: loopbackOpen}, egress, uint32(mtu))
		got, err := io.ReadAll(g.dial(addr))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("MTU %d: %d bytes, %v", mtu, len(got), err)
		}
		const ethernet = 14
		if n := g.largest.Load(); n > mtu+ethernet || n < mtu/2 {
			t.Errorf("MTU %d: the largest frame has %d bytes", mtu, n)
		}
	}
}

func TestTCPServerHalfClose(t *testing.T) {
	after := make(chan string, 1)
	addr := serveTCP(t, func(c *net.TCPConn) {
		io.WriteString(c, "first")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		after <- string(b)
	})
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	c := g.dial(addr)
	if b, err := io.ReadAll(c); err != nil || string(b) != "first" {
		t.Fatalf("read %q, %v", b, err)
	}
	// The server has closed its side; ours still carries data.
	io.WriteString(c, "second")
	c.Close()
	select {
	case b := <-after:
		if b != "second" {
			t.Errorf("server read %q", b)
		}
	case <-time.After(testTimeout):
		t.Fatal("server saw no end of stream")
	}
}

func TestTCPResetReachesGuest(t *testing.T) {
	addr := serveTCP(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		resetConn(c)
	})
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	c := g.dial(addr)
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "reset") {
		t.Errorf("read: %v, want connection reset", err)
	}
}

func TestTCPResetReachesServer(t *testing.T) {
	got := make(chan error, 1)
	ready := make(chan struct{})
	addr := serveTCP(t, func(c *net.TCPConn) {
		close(ready)
		_, err := io.ReadAll(c)
		got <- err
	})
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	g.dial(addr)
	<-ready
	for _, e := range g.stack.RegisteredEndpoints() {
		e.Abort()
	}
	select {
	case err := <-got:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("server read: %v, want ECONNRESET", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("server saw no reset")
	}
}

func TestTCPRefusedByServerIsRefusedInGuest(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	g.mustRefuse(addr)
}

func TestTCPManyConnections(t *testing.T) {
	addr := serveTCP(t, echo)
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	const conns = 200
	errs := make(chan error, conns)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() { errs <- g.roundTrip(addr, i) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if s := g.gw.Stats(); s.TCPTotal != conns {
		t.Errorf("TCPTotal = %d, want %d", s.TCPTotal, conns)
	}
	waitFor(t, "all connections to be forgotten", func() bool { return g.gw.Stats().TCPActive == 0 })
}

// roundTrip sends 32 KB that depend on seed through an echo server.
func (g *guest) roundTrip(addr string, seed int) error {
	c, err := g.dialTimeout(addr, testTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	data := bytes.Repeat([]byte{byte(seed), byte(seed >> 8), 7}, 11000)
	go func() {
		c.Write(data)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("connection %d: got %d other bytes", seed, len(got))
	}
	return err
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(testTimeout)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestTCPConnectionLimit(t *testing.T) {
	addr := serveTCP(t, echo)
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen, Limits: Limits{TCPConns: 3}}, egress)
	for range 3 {
		g.dial(addr)
	}
	g.mustRefuse(addr)
	if d := g.denial(); d.Reason != reasonLimit || d.Dst.String() != addr || d.Proto != "tcp" {
		t.Errorf("denial %+v", d)
	}
}

func TestTCPIdleConnectionIsReset(t *testing.T) {
	addr := serveTCP(t, echo)
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen, Limits: Limits{TCPIdle: 100 * time.Millisecond}}, egress)
	c := g.dial(addr)
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("read: %v, want connection reset", err)
	}
}

func TestTCPFlowControlIsBounded(t *testing.T) {
	// A server that sends for ever to a guest that does not read.
	sent := make(chan int64, 1)
	addr := serveTCP(t, func(c *net.TCPConn) {
		c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		n, _ := io.Copy(c, zeros{})
		sent <- n
	})
	g := newGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	c := g.dial(addr)
	const bound = 32 << 20 // the kernel's own socket buffers are most of it
	if n := <-sent; n > bound {
		t.Errorf("%d bytes are buffered somewhere", n)
	}
	c.Close()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestDialIntoGuest(t *testing.T) {
	g := newGuest(t, Config{}, Policy{})
	l, err := gonet.ListenTCP(g.stack, full("192.168.127.2:8000"), ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if from := c.RemoteAddr().(*net.TCPAddr).IP.String(); from != "192.168.127.1" {
			t.Errorf("connection from %s", from)
		}
		io.Copy(c, c)
	})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := g.gw.Dial(ctx, 8000)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "preview")
	c.(interface{ CloseWrite() error }).CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "preview" {
		t.Errorf("read %q, %v", b, err)
	}
	wg.Wait()
	if _, err := g.gw.Dial(ctx, 8001); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial to a closed port: %v, want ECONNREFUSED", err)
	}
	g.gw.Close()
	if _, err := g.gw.Dial(ctx, 8000); !errors.Is(err, ErrClosed) {
		t.Errorf("dial on a closed gateway: %v, want ErrClosed", err)
	}
}

func TestDialIntoSilentGuestEndsWithContext(t *testing.T) {
	r := newRawGuest(t, Config{}, Policy{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.gw.Dial(ctx, 80); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: %v, want deadline exceeded", err)
	}
}

func TestUnknownConnectionIsReset(t *testing.T) {
	// After a restore the guest goes on with connections that its new gateway
	// has never seen.
	r := newRawGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	r.send(tcpFrame(guestAddr, mustAddrPort("127.0.0.1:443"), flagAck, []byte("old data")))
	reply := r.receive()
	if flags := reply[14+20+13]; flags&flagRst == 0 {
		t.Errorf("flags %#x, want a reset", flags)
	}
}

package network

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ramet.dev/ramet/internal/network/layout"
)

func TestCloseLeavesNothing(t *testing.T) {
	hold := make(chan struct{})
	addr := serveTCP(t, func(c *net.TCPConn) { <-hold })
	echoAddr := serveTCP(t, echo)
	server := startDNS(t, zone{"web.test.": {"A 203.0.113.5"}})
	silent := startDNS(t, dns.HandlerFunc(func(dns.ResponseWriter, *dns.Msg) {}))
	var before int
	for round := range 6 {
		if round == 1 { // the first round starts what stays, such as the poller
			before = runtime.NumGoroutine()
		}
		// With everything in use: open, finished and refused connections, UDP
		// sessions, DNS on TCP, a question that nobody answers.
		g := newGuest(t, Config{
			AllowedPrivate: loopbackOpen, Upstreams: only(server), Metadata: http.NotFoundHandler(),
		}, egress)
		for range 20 {
			c := g.dial(addr)
			c.Write(make([]byte, 100<<10))
			if err := g.roundTrip(echoAddr, round); err != nil {
				t.Fatal(err)
			}
		}
		g.mustRefuse("10.0.0.1:80")
		g.ask("udp", "web.test.", dns.TypeA)
		g.ask("tcp", "web.test.", dns.TypeA)
		g.dialUDP(silent.String()).Write([]byte("x"))
		g.dial("169.254.169.254:80")
		start := time.Now()
		g.close()
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("close took %v", d)
		}
		if !errors.Is(g.gw.Err(), ErrClosed) {
			t.Errorf("Err = %v", g.gw.Err())
		}
		if s := g.gw.Stats(); s.TCPActive != 0 || s.UDPActive != 0 {
			t.Errorf("after close: %+v", s)
		}
	}
	close(hold)
	waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestCloseWhileGuestDoesNotRead(t *testing.T) {
	// As when the machine is paused: writes to the stream block.
	addr := serveTCP(t, func(c *net.TCPConn) { io.Copy(c, zeros{}) })
	r := newRawGuest(t, Config{AllowedPrivate: loopbackOpen}, egress)
	r.send(tcpFrame(guestAddr, mustAddrPort(addr), flagSyn, nil))
	r.receive()
	for range 2000 {
		r.send(tcpFrame(guestAddr, mustAddrPort("10.0.0.1:80"), flagAck, nil))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.gw.Close()
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal("Close hangs")
	}
}

func TestCloseIsIdempotentAndConcurrent(t *testing.T) {
	g := newGuest(t, Config{}, egress)
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- g.gw.Close() }()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestGatewayEndsWithItsStream(t *testing.T) {
	r := newRawGuest(t, Config{}, egress)
	r.conn.Close()
	select {
	case <-r.gw.Done():
	case <-time.After(testTimeout):
		t.Fatal("the gateway goes on")
	}
	if err := r.gw.Err(); !errors.Is(err, io.EOF) {
		t.Errorf("Err = %v, want EOF", err)
	}
}

func TestMalformedFrames(t *testing.T) {
	r := newRawGuest(t, Config{}, egress)
	// Short, empty and too long frames are dropped, and what follows works.
	for _, size := range []int{0, 1, 13, 14, 15, 33, layout.MTU + frameExtra + 1, maxLength} {
		r.send(make([]byte, size))
	}
	dropped := r.gw.Stats
	r.send(tcpFrame(guestAddr, mustAddrPort("10.0.0.1:80"), flagSyn, nil))
	r.receive()
	if n := dropped().FramesDropped; n != 8 {
		t.Errorf("%d frames dropped, want 8", n)
	}
	// A length that cannot be ends the gateway: the stream makes no sense.
	if _, err := r.conn.Write(binary.BigEndian.AppendUint32(nil, maxLength+1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.gw.Done():
	case <-time.After(testTimeout):
		t.Fatal("the gateway goes on")
	}
	if err := r.gw.Err(); !errors.Is(err, errFrameLength) {
		t.Errorf("Err = %v", err)
	}
}

func TestForgedSourcesAreDropped(t *testing.T) {
	r := newRawGuest(t, Config{}, egress)
	r.send(tcpFrame(gatewayAddr, mustAddrPort("10.0.0.1:80"), flagSyn, nil))
	r.send(tcpFrame(metadataAddr, mustAddrPort("10.0.0.1:80"), flagSyn, nil))
	r.send(tcpFrame(guestAddr, mustAddrPort("224.0.0.1:80"), flagSyn, nil))
	r.send(tcpFrame(guestAddr, mustAddrPort("10.0.0.1:80"), flagSyn, nil))
	r.receive() // the reset of the last
	if s := r.gw.Stats(); s.FramesDropped != 3 || s.Denied != 1 {
		t.Errorf("stats %+v", s)
	}
}

// FuzzStream feeds arbitrary bytes to a gateway as the guest's frames. It must
// neither panic nor hang, and Close must still work.
func FuzzStream(f *testing.F) {
	framed := func(frames ...[]byte) []byte {
		var b []byte
		for _, fr := range frames {
			b = binary.BigEndian.AppendUint32(b, uint32(len(fr)))
			b = append(b, fr...)
		}
		return b
	}
	web := mustAddrPort("10.0.0.1:80")
	f.Add(framed(tcpFrame(guestAddr, web, flagSyn, nil), udpFrame(guestAddr, 5, web, []byte("x"))))
	f.Add(framed(tcpFrame(guestAddr, mustAddrPort("192.168.127.1:53"), flagSyn, nil)))
	f.Add(framed(udpFrame(guestAddr, 9, mustAddrPort("192.168.127.1:53"), []byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01"))))
	f.Add(framed(make([]byte, 13), nil, make([]byte, layout.MTU+14)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		gw, err := New(Config{HostAddrs: noHost, Upstreams: only()}).Attach(ours, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, theirs)
		theirs.SetWriteDeadline(time.Now().Add(testTimeout))
		theirs.Write(b) // fails when the gateway gave up on the stream
		theirs.Close()
		select {
		case <-gw.Done():
		case <-time.After(testTimeout):
			t.Error("the gateway goes on without a stream")
		}
		gw.Close()
	})
}

package network

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"ramet.dev/ramet/internal/network/layout"
)

// BenchmarkDownload moves data from a loopback server through the gateway to a
// guest that is a second netstack in this process; so the figure includes the
// work of both stacks.
func BenchmarkDownload(b *testing.B) {
	for _, mtu := range []uint32{layout.MTU, layout.ReceiveMTU} {
		b.Run(fmt.Sprint(mtu), func(b *testing.B) { benchDownload(b, mtu) })
	}
}

func benchDownload(b *testing.B, mtu uint32) {
	addr := serveTCP(b, func(c *net.TCPConn) {
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		io.Copy(c, zeros{})
	})
	g := newGuestMTU(b, Config{AllowedPrivate: loopbackOpen}, egress, mtu)
	c := g.dial(addr)
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	buf := make([]byte, 256<<10)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(c, 1<<20), buf); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
}

// BenchmarkUpload is the other direction.
func BenchmarkUpload(b *testing.B) {
	addr := serveTCP(b, func(c *net.TCPConn) {
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		io.Copy(io.Discard, c)
	})
	g := newGuest(b, Config{AllowedPrivate: loopbackOpen}, egress)
	c := g.dial(addr)
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	data := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := c.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
}

// BenchmarkAttach is what a gateway costs to start and to close.
func BenchmarkAttach(b *testing.B) {
	n := New(Config{})
	for b.Loop() {
		ours, theirs := streamPair(b)
		g, err := n.Attach(ours, egress)
		if err != nil {
			b.Fatal(err)
		}
		g.Close()
		theirs.Close()
	}
}

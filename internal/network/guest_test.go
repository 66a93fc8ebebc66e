package network

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/qdisc/fifo"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"ramet.dev/ramet/internal/network/layout"
)

const testTimeout = 10 * time.Second

// loopbackOpen lets the guest of a test reach servers of that test.
var loopbackOpen = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

var egress = Policy{Egress: true}

// streamPair is a connected pair of stream sockets, as QEMU and we have them.
func streamPair(t testing.TB) (ours, theirs net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "stream")
		conns[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return conns[0], conns[1]
}

// guest is a second network stack at the other end of a gateway's stream, with
// the guest's address and an ordinary (not promiscuous) card.
type guest struct {
	t     testing.TB
	gw    *Gateway
	stack *stack.Stack
	link  *link
	done  chan struct{}
	once  sync.Once
	// largest is the size of the largest frame received, in bytes.
	largest atomic.Int64
}

// newGuest attaches a gateway with cfg and starts a guest on it.
func newGuest(t testing.TB, cfg Config, p Policy) *guest {
	t.Helper()
	return newGuestMTU(t, cfg, p, layout.MTU)
}

// newGuestMTU is newGuest with a guest that announces TCP segments for mtu. It
// would also send such segments, so one with a larger MTU only downloads.
func newGuestMTU(t testing.TB, cfg Config, p Policy, mtu uint32) *guest {
	t.Helper()
	ours, theirs := streamPair(t)
	gw, err := New(cfg).Attach(ours, p, WithName("test"))
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, gw: gw, done: make(chan struct{})}
	g.link = &link{conn: theirs, mac: mustMAC(layout.GuestMAC), mtu: mtu, maxFrame: layout.ReceiveMTU + frameExtra, failed: func(error) {}}
	g.link.admit = func(frame []byte) (tcpip.NetworkProtocolNumber, bool) {
		if len(frame) < header.EthernetMinimumSize {
			return 0, false
		}
		g.largest.Store(max(g.largest.Load(), int64(len(frame))))
		return header.Ethernet(frame).Type(), true
	}
	ip := ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: true})
	g.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ip, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	must := func(err tcpip.Error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(g.stack.CreateNICWithOptions(nicID, g.link, stack.NICOptions{QDisc: fifo.New(g.link, 1, queueFrames)}))
	must(g.stack.AddProtocolAddress(nicID, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: toAddress(guestAddr), PrefixLen: layout.PrefixLen},
	}, stack.AddressProperties{}))
	subnet, err := tcpip.NewSubnet(tcpip.AddrFrom4([4]byte{192, 168, 127, 0}), tcpip.MaskFrom("\xff\xff\xff\x00"))
	if err != nil {
		t.Fatal(err)
	}
	g.stack.SetRouteTable([]tcpip.Route{
		{Destination: subnet, NIC: nicID},
		{Destination: header.IPv4EmptySubnet, Gateway: toAddress(gatewayAddr), NIC: nicID},
	})
	// Unlike Linux, this stack takes loopback addresses for neighbours.
	must(g.stack.AddStaticNeighbor(nicID, ipv4.ProtocolNumber, tcpip.AddrFrom4([4]byte{127, 0, 0, 1}), mustMAC(layout.GatewayMAC)))
	go func() {
		defer close(g.done)
		_ = g.link.run()
	}()
	t.Cleanup(g.close)
	return g
}

// close ends the gateway and then the guest.
func (g *guest) close() {
	g.once.Do(func() {
		g.gw.Close()
		g.link.conn.Close()
		<-g.done
		g.stack.Destroy()
	})
}

func full(addr string) tcpip.FullAddress {
	a := netip.MustParseAddrPort(addr)
	return tcpip.FullAddress{NIC: nicID, Addr: toAddress(a.Addr()), Port: a.Port()}
}

func (g *guest) dialTimeout(addr string, d time.Duration) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.stack, full(addr), ipv4.ProtocolNumber)
}

func (g *guest) dial(addr string) *gonet.TCPConn {
	g.t.Helper()
	c, err := g.dialTimeout(addr, testTimeout)
	if err != nil {
		g.t.Fatalf("dial %s: %v", addr, err)
	}
	c.SetDeadline(time.Now().Add(testTimeout))
	g.t.Cleanup(func() { c.Close() })
	return c
}

func (g *guest) dialUDP(addr string) *gonet.UDPConn {
	g.t.Helper()
	to := full(addr)
	c, err := gonet.DialUDP(g.stack, nil, &to, ipv4.ProtocolNumber)
	if err != nil {
		g.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(testTimeout))
	g.t.Cleanup(func() { c.Close() })
	return c
}

// mustRefuse checks that a connection is refused quickly, not left hanging.
func (g *guest) mustRefuse(addr string) {
	g.t.Helper()
	start := time.Now()
	c, err := g.dialTimeout(addr, testTimeout)
	if err == nil {
		c.Close()
		g.t.Errorf("dial %s: connected, want refused", addr)
		return
	}
	if !strings.Contains(err.Error(), "refused") {
		g.t.Errorf("dial %s: %v after %v, want refused", addr, err, time.Since(start))
	}
}

// denial returns the next event.
func (g *guest) denial() Denial {
	g.t.Helper()
	select {
	case d := <-g.gw.Events():
		return d
	case <-time.After(testTimeout):
		g.t.Fatal("no denial event")
		return Denial{}
	}
}

// serveTCP runs handle for each connection to a new loopback port, and waits
// for all of them at the end of the test.
func serveTCP(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(testTimeout))
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.CloseWrite()
}

// rawGuest speaks frames by hand.
type rawGuest struct {
	t    testing.TB
	conn net.Conn
	gw   *Gateway
}

func newRawGuest(t testing.TB, cfg Config, p Policy) *rawGuest {
	t.Helper()
	ours, theirs := streamPair(t)
	gw, err := New(cfg).Attach(ours, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gw.Close()
		theirs.Close()
	})
	theirs.SetDeadline(time.Now().Add(testTimeout))
	return &rawGuest{t: t, conn: theirs, gw: gw}
}

func (r *rawGuest) send(frame []byte) {
	r.t.Helper()
	msg := binary.BigEndian.AppendUint32(nil, uint32(len(frame)))
	if _, err := r.conn.Write(append(msg, frame...)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rawGuest) receive() []byte {
	r.t.Helper()
	frame, err := readFrame(r.conn)
	if err != nil {
		r.t.Fatal(err)
	}
	return frame
}

func readFrame(c io.Reader) ([]byte, error) {
	var size [lengthSize]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, frame)
	return frame, err
}

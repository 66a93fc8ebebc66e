package worker

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/network/layout"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/fake"
)

func policyOf(t *testing.T, p sandbox.EgressPolicy) network.Policy {
	t.Helper()
	policy, err := network.ParsePolicy(true, p)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// datagram is a frame of the guest, as its stream carries it, with one to an address.
func datagram(to netip.AddrPort) []byte {
	ip := make([]byte, 20, 28)
	ip[0], ip[8], ip[9] = 0x45, 64, 17 // IPv4 with a header of 20 bytes, TTL, UDP
	binary.BigEndian.PutUint16(ip[2:], 28)
	source, destination := netip.MustParseAddr(layout.GuestIP).As4(), to.Addr().As4()
	copy(ip[12:], source[:])
	copy(ip[16:], destination[:])
	var sum uint32
	for n := 0; n < len(ip); n += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[n:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := binary.BigEndian.AppendUint16(nil, 4000)
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	udp = append(udp, 0, 8, 0, 0) // its length, and no checksum
	frame := binary.BigEndian.AppendUint32(nil, 14+28)
	for _, mac := range []string{layout.GatewayMAC, layout.GuestMAC} {
		for b := range strings.SplitSeq(mac, ":") {
			n, _ := strconv.ParseUint(b, 16, 8) // they are constants
			frame = append(frame, byte(n))
		}
	}
	return append(append(append(frame, 8, 0), ip...), udp...)
}

// send sends a datagram from the guest of a machine that runs.
func send(t *testing.T, guest net.Conn, to netip.AddrPort) {
	t.Helper()
	if err := guest.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Write(datagram(to)); err != nil {
		t.Fatal(err)
	}
}

func nextDenial(t *testing.T, w *Worker) sandbox.EgressDenial {
	t.Helper()
	select {
	case d := <-w.Denials():
		return d
	case <-time.After(patience):
		t.Fatal("no denial")
		return sandbox.EgressDenial{}
	}
}

// networked makes a host whose guests' ends of the network come out of a channel.
func networked(t *testing.T, pool int) (*poolBench, chan net.Conn) {
	b := newPoolBench(t, pool)
	ends := make(chan net.Conn, 64)
	b.host = fake.NewHost(fake.Config{Serve: serveAgent, Network: func(_ *fake.Guest, conn net.Conn) {
		ends <- conn
		drain(conn)
	}})
	return b, ends
}

func nextEnd(t *testing.T, ends chan net.Conn) net.Conn {
	t.Helper()
	select {
	case conn := <-ends:
		return conn
	case <-time.After(patience):
		t.Fatal("no gateway was attached")
		return nil
	}
}

func drain(conn net.Conn) {
	buf := make([]byte, 4096)
	for {
		if _, err := conn.Read(buf); err != nil {
			return // it is closed
		}
	}
}

// signals is a channel for each guest.
type signals struct {
	mu sync.Mutex
	by map[*fake.Guest]chan struct{} // guarded by mu
}

func newSignals() *signals { return &signals{by: map[*fake.Guest]chan struct{}{}} }

func (s *signals) of(g *fake.Guest) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[g] == nil {
		s.by[g] = make(chan struct{})
	}
	return s.by[g]
}

func TestPoolHandsOffThePolicyAndNoOldDenials(t *testing.T) {
	b, ends := networked(t, 1)
	before := netip.MustParseAddrPort("203.0.113.1:1001")
	// Its agent does not answer before the guest has tried something.
	tried := newSignals()
	b.host = fake.NewHost(fake.Config{
		Serve: func(g *fake.Guest, conn net.Conn) {
			<-tried.of(g)
			serveAgent(g, conn)
		},
		Network: func(g *fake.Guest, conn net.Conn) {
			// A refill that the test's end cuts short has a machine that ends before.
			if _, err := conn.Write(datagram(before)); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) {
				t.Error(err)
			}
			close(tried.of(g))
			ends <- conn
			drain(conn)
		},
	})
	w := b.filled(t)
	nextEnd(t, ends) // the golden's
	guest := nextEnd(t, ends)
	w.pool.mu.Lock()
	warm := w.pool.kinds[0].ready[0].inst
	w.pool.mu.Unlock()
	eventually(t, "the closed network has refused it", func() bool { return len(warm.gateway.Events()) == 1 })

	r := poolRequest(sandbox.DefaultShape())
	r.Policy = policyOf(t, sandbox.EgressPolicy{Deny: []string{"203.0.113.0/24"}})
	i := start(t, w, r)
	if i != warm || !i.gateway.Policy().Equal(r.Policy) {
		t.Fatalf("instance %s of the pool's %s has the policy %+v", i.ID, warm.ID, i.gateway.Policy())
	}
	after := netip.MustParseAddrPort("203.0.113.1:1002")
	send(t, guest, after)
	if d := nextDenial(t, w); d.Instance != i.ID || d.Protocol != "udp" || d.Addr != after || d.Rule != "deny 203.0.113.0/24" || d.Reason == "" {
		t.Errorf("%+v", d)
	}
}

func TestBootOnDemandHasThePolicyAndTellsOfDenials(t *testing.T) {
	b, ends := networked(t, 0)
	w := b.worker(t)
	r := poolRequest(sandbox.DefaultShape())
	r.Policy = policyOf(t, sandbox.EgressPolicy{Allow: []string{"203.0.113.1"}})
	i := start(t, w, r)
	nextEnd(t, ends) // the golden's
	guest := nextEnd(t, ends)
	to := netip.MustParseAddrPort("203.0.113.2:9")
	send(t, guest, to)
	if d := nextDenial(t, w); d.Instance != i.ID || d.Addr != to || d.Rule != "allow list" {
		t.Errorf("%+v", d)
	}
	// A new gateway tells too, and has the policy of now.
	if err := w.SetPolicy(i.ID, network.Policy{}); err != nil {
		t.Fatal(err)
	}
	guest.Close()
	send(t, nextEnd(t, ends), to)
	if d := nextDenial(t, w); d.Instance != i.ID || d.Rule != "egress: false" {
		t.Errorf("%+v", d)
	}
	if err := w.Stop(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.SetPolicy(i.ID, r.Policy); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a machine that is gone: %v", err)
	}
}

// TestNobodyFetchesDenials: what nobody records must not hold up a gateway.
func TestNobodyFetchesDenials(t *testing.T) {
	b := newPoolBench(t, 0)
	w := b.worker(t)
	for range 2 * maxDenials {
		w.tellDenial("i", network.Denial{Proto: "tcp"})
	}
	if len(w.Denials()) != maxDenials {
		t.Errorf("%d wait", len(w.Denials()))
	}
}

func TestPolicyChangesWhileAMachineIsTakenOver(t *testing.T) {
	b := newPoolBench(t, 0)
	w := b.worker(t)
	i := start(t, w, poolRequest(sandbox.DefaultShape()))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b.host.Fail(fake.StepAdopt, errors.New("it does not answer"))
	next := b.worker(t)
	if err := next.Adopt(t.Context(), []Adoptable{adoptable(i)}); err != nil {
		t.Fatal(err)
	}
	changed := policyOf(t, sandbox.EgressPolicy{Allow: []string{"good.test"}})
	if err := next.SetPolicy(i.ID, changed); err != nil {
		t.Fatal(err)
	}
	b.host.Fail(fake.StepAdopt, nil)
	var adopted *Instance
	eventually(t, "it is adopted", func() bool { adopted, _ = next.Instance(i.ID); return adopted != nil })
	if got := adopted.currentGateway().Policy(); !got.Equal(changed) {
		t.Errorf("its policy is %+v", got)
	}
}

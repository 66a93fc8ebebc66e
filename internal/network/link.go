package network

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	lengthSize = 4
	// frameExtra is what a frame has beyond its IP packet, in bytes: the
	// Ethernet header and perhaps a VLAN tag.
	frameExtra = header.EthernetMinimumSize + 4
	// maxLength is the largest frame length that QEMU can send at all. More
	// means that the stream is not what we think it is.
	maxLength = 69 << 10
)

var errFrameLength = errors.New("frame length out of range")

// link is the netstack link endpoint on the frame stream. It adds and removes
// Ethernet headers. One goroutine reads (run), one writes: the dispatcher of
// the queueing discipline above it, which hands over packets in batches.
type link struct {
	conn net.Conn
	mac  tcpip.LinkAddress
	mtu  uint32 // of what is written
	// maxFrame is the largest frame taken, in bytes; larger ones are dropped.
	maxFrame int
	// admit says which frames reach the stack.
	admit func(frame []byte) (tcpip.NetworkProtocolNumber, bool)
	// failed is called when the stream breaks, at most once per goroutine.
	failed func(error)

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher

	writeMu sync.Mutex
	out     []byte // the batch being written

	bytesIn, bytesOut, dropped atomic.Uint64
}

var (
	_ stack.LinkEndpoint = (*link)(nil)
	_ stack.GSOEndpoint  = (*link)(nil)
)

// run reads frames until the stream ends, and returns why.
func (l *link) run() error {
	r := bufio.NewReaderSize(l.conn, 256<<10)
	for {
		size, err := nextFrame(r)
		if err != nil {
			return err
		}
		if size > l.maxFrame {
			l.dropped.Add(1)
			if _, err := r.Discard(size); err != nil {
				return err
			}
			continue
		}
		frame, err := r.Peek(size)
		if err != nil {
			return err
		}
		l.bytesIn.Add(uint64(size))
		l.receive(frame)
		if _, err := r.Discard(size); err != nil {
			return err
		}
	}
}

// nextFrame reads a length. The frame of that many bytes is next in r.
func nextFrame(r *bufio.Reader) (int, error) {
	prefix, err := r.Peek(lengthSize)
	if err != nil {
		if len(prefix) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	size := binary.BigEndian.Uint32(prefix)
	if size > maxLength {
		return 0, fmt.Errorf("%w: %d bytes", errFrameLength, size)
	}
	_, err = r.Discard(lengthSize)
	return int(size), err
}

// receive hands one frame to the stack, if the filter admits it. It keeps no
// reference to the frame.
func (l *link) receive(frame []byte) {
	proto, ok := l.admit(frame)
	l.mu.RLock()
	d := l.dispatcher
	l.mu.RUnlock()
	if !ok || d == nil {
		l.dropped.Add(1)
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		Payload: buffer.MakeWithData(frame),
	})
	defer pkt.DecRef()
	if !l.ParseHeader(pkt) {
		return
	}
	pkt.PktType = tcpip.PacketHost
	if frame[0]&1 != 0 {
		pkt.PktType = tcpip.PacketBroadcast // the filter admits no other multicast
	}
	d.DeliverNetworkPacket(proto, pkt)
}

// WritePackets writes a batch with one system call. While the machine is
// paused the write blocks; the queue above then drops, as a network does.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.out = l.out[:0]
	for _, pkt := range pkts.AsSlice() {
		l.out = binary.BigEndian.AppendUint32(l.out, uint32(pkt.Size()))
		views, offset := pkt.AsViewList()
		for v := views.Front(); v != nil; v = v.Next() {
			b := v.AsSlice()
			if offset >= len(b) {
				offset -= len(b)
				continue
			}
			l.out = append(l.out, b[offset:]...)
			offset = 0
		}
	}
	n, err := l.conn.Write(l.out)
	l.bytesOut.Add(uint64(n))
	if err != nil {
		l.failed(err)
		return 0, &tcpip.ErrClosedForSend{}
	}
	return pkts.Len(), nil
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// Capabilities implements stack.LinkEndpoint. The stream is local and loses
// no bits, so checksums of what the guest sends are not verified. The guest
// verifies ours: frames on the stream carry no offload flags.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}

// AddHeader implements stack.LinkEndpoint.
func (l *link) AddHeader(pkt *stack.PacketBuffer) {
	eth := header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize))
	eth.Encode(&header.EthernetFields{
		SrcAddr: l.mac,
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (l *link) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// SupportedGSO lets TCP build segments of up to GSOMaxSize bytes that netstack
// splits into frames just before the queue.
func (l *link) SupportedGSO() stack.SupportedGSO { return stack.GVisorGSOSupported }

// GSOMaxSize implements stack.GSOEndpoint.
func (l *link) GSOMaxSize() uint32 { return stack.GVisorGSOMaxSize }

// MTU implements stack.LinkEndpoint.
func (l *link) MTU() uint32 { return l.mtu }

// SetMTU implements stack.LinkEndpoint; the MTU is fixed.
func (l *link) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (l *link) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (l *link) LinkAddress() tcpip.LinkAddress { return l.mac }

// SetLinkAddress implements stack.LinkEndpoint; the address is fixed.
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}

// ARPHardwareType implements stack.LinkEndpoint.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// Wait implements stack.LinkEndpoint; the gateway waits for run itself.
func (l *link) Wait() {}

// Close implements stack.LinkEndpoint; the gateway closes the stream.
func (l *link) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (l *link) SetOnCloseAction(func()) {}

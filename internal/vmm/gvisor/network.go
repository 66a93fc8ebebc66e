package gvisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/layout"
)

// cardName is the network card's, in the sandbox's network namespace and in the guest.
const cardName = "eth0"

// maxFrame bounds an Ethernet frame, in bytes.
const maxFrame = 64 << 10

// inNetwork runs do in the network namespace of a process, on a thread that ends with it.
func inNetwork(pidfd *os.File, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread is of no other use
		rc, err := pidfd.SyscallConn()
		if err != nil {
			done <- err
			return
		}
		var serr error
		err = rc.Control(func(fd uintptr) { serr = unix.Setns(int(fd), unix.CLONE_NEWNET) })
		if err = errors.Join(err, serr); err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// makeCard makes the network card of a sandbox: a TAP in its network namespace.
func makeCard(pidfd *os.File) error {
	err := inNetwork(pidfd, func() error {
		tap, err := openTAP()
		if err != nil {
			return err
		}
		defer tap.Close()
		// It stays when nobody has it open: a server may end and another take over.
		if err := unix.IoctlSetInt(int(tap.Fd()), unix.TUNSETPERSIST, 1); err != nil {
			return fmt.Errorf("keep the card: %w", err)
		}
		// The host's own stack has nothing to say there.
		path := "/proc/sys/net/ipv6/conf/" + cardName + "/disable_ipv6"
		if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return configureCard()
	})
	if err != nil {
		return fmt.Errorf("make network card: %w", err)
	}
	return nil
}

// configureCard brings the card up. It has no address: those are the guest's.
func configureCard() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	card, err := h.LinkByName(cardName)
	if err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return h.LinkSetHardwareAddr(card, guestMAC) },
		func() error { return h.LinkSetMTU(card, layout.MTU) },
		func() error { return h.LinkSetUp(card) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// openTAP opens the card's end of this thread's network namespace, and makes it where it is missing.
func openTAP() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(cardName)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	// A process that is being started has copies of this one's files until it has begun, among them
	// perhaps the card's that was just closed, and then the card is busy. Nobody is started meanwhile.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return nil, errors.Join(fmt.Errorf("open TAP: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// dialCard opens the card of a sandbox as a stream of frames.
func dialCard(pidfd *os.File) (net.Conn, error) {
	var tap *os.File
	err := inNetwork(pidfd, func() (err error) {
		tap, err = openTAP()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open network card: %w", err)
	}
	return &frames{File: tap}, nil
}

// frames makes of a TAP the stream of vmm.Machine.DialNetwork: each frame after its length.
type frames struct {
	*os.File

	reading sync.Mutex
	in      []byte // guarded by reading; the buffer
	left    []byte // guarded by reading; what of the last frame was not read

	writing sync.Mutex
	out     []byte // guarded by writing; the beginning of a frame
}

const frameHeader = 4

func (f *frames) Read(b []byte) (int, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	if len(f.left) == 0 {
		if f.in == nil {
			f.in = make([]byte, frameHeader+maxFrame)
		}
		n, err := f.File.Read(f.in[frameHeader:])
		if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADFD) {
			return 0, io.EOF // the machine has ended, or another stream was opened
		}
		if err != nil {
			return 0, err
		}
		binary.BigEndian.PutUint32(f.in, uint32(n))
		f.left = f.in[:frameHeader+n]
	}
	n := copy(b, f.left)
	f.left = f.left[n:]
	return n, nil
}

func (f *frames) Write(b []byte) (int, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	written := len(b)
	if len(f.out) > 0 {
		b = append(f.out, b...)
	}
	for len(b) >= frameHeader {
		size := int(binary.BigEndian.Uint32(b))
		if size > maxFrame {
			return 0, fmt.Errorf("a frame of %d bytes is too large", size)
		}
		if len(b) < frameHeader+size {
			break
		}
		if err := f.send(b[frameHeader : frameHeader+size]); err != nil {
			return 0, err
		}
		b = b[frameHeader+size:]
	}
	f.out = append(f.out[:0], b...)
	return written, nil
}

// send hands a frame to the card. Like a real one it drops what it cannot take: frames that
// are too short, and all while it is down.
func (f *frames) send(frame []byte) error {
	_, err := f.File.Write(frame)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIO) || errors.Is(err, io.ErrShortWrite) {
		return nil
	}
	return err
}

type cardAddr struct{}

func (cardAddr) Network() string { return "tap" }
func (cardAddr) String() string  { return cardName }

func (f *frames) LocalAddr() net.Addr  { return cardAddr{} }
func (f *frames) RemoteAddr() net.Addr { return cardAddr{} }

var _ net.Conn = (*frames)(nil)

// pipes makes of the two FIFOs the agent's stream.
type pipes struct {
	in, out *os.File // the guest's
}

// dialAgent opens the host's ends. A sandbox that is gone has no reader for the first one.
func dialAgent(dir string) (net.Conn, error) {
	in, err := os.OpenFile(dir+"/"+toGuest, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open the agent's stream: %w", err)
	}
	out, err := os.OpenFile(dir+"/"+fromGuest, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the agent's stream: %w", err), in.Close())
	}
	return &pipes{in, out}, nil
}

func (p *pipes) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *pipes) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

func (p *pipes) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}
func (p *pipes) SetReadDeadline(t time.Time) error  { return p.out.SetReadDeadline(t) }
func (p *pipes) SetWriteDeadline(t time.Time) error { return p.in.SetWriteDeadline(t) }

type agentAddr struct{}

func (agentAddr) Network() string { return "pipe" }
func (agentAddr) String() string  { return "agent" }

func (p *pipes) LocalAddr() net.Addr  { return agentAddr{} }
func (p *pipes) RemoteAddr() net.Addr { return agentAddr{} }

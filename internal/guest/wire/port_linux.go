package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/guest/rawio"
)

// portBuffer is the size of the buffers in which the guest's driver receives.
// A read(2) returns no more than one of them.
const portBuffer = 4096

// virtioPort is a virtio-serial port of this guest.
//
// Its driver answers read(2) with 0 at once while nobody is connected on the
// host's side, which is no end of file: somebody will connect. The runtime's
// poller is edge-triggered and is woken at each connect, so an empty read waits
// for the next edge, as a read that would block does; it neither spins nor
// polls.
type virtioPort struct {
	*os.File
	raw syscall.RawConn
}

// OpenPort opens a virtio-serial device, such as /dev/vport1p1.
func OpenPort(path string) (Port, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path) // non-blocking, so the poller takes it
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("poll %s: %w", path, err), f.Close())
	}
	return &virtioPort{File: f, raw: raw}, nil
}

// Read fills p with what is there, and waits only when nothing is.
func (v *virtioPort) Read(p []byte) (int, error) {
	var n int
	var failure error
	err := v.raw.Read(func(fd uintptr) bool {
		for n < len(p) {
			got, err := rawio.Read(int(fd), p[n:])
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN), err == nil && got == 0:
				return n > 0
			case err != nil:
				failure = err
				return true
			}
			n += got
			if got < portBuffer {
				return true // most likely the last of it
			}
		}
		return true
	})
	if n > 0 {
		return n, nil
	}
	return 0, errors.Join(failure, err)
}

// Write writes all of p, unless it is interrupted.
func (v *virtioPort) Write(p []byte) (int, error) {
	var n int
	var failure error
	err := v.raw.Write(func(fd uintptr) bool {
		for n < len(p) {
			put, err := rawio.Write(int(fd), p[n:])
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EAGAIN), err == nil && put == 0:
				return false
			case err != nil:
				failure = err
				return true
			}
			n += put
		}
		return true
	})
	if n == len(p) {
		return n, nil
	}
	return n, errors.Join(failure, err)
}

// pipes are two descriptors, each for one direction.
type pipes struct {
	in, out *os.File
}

// OpenPipes makes a Port of the descriptors of two pipes, which it owns. The other ends may be closed and
// opened again, if somebody keeps each pipe open meanwhile: the end of one is an error.
func OpenPipes(in, out int) (Port, error) {
	for _, fd := range []int{in, out} {
		if err := unix.SetNonblock(fd, true); err != nil { // so that the poller takes it
			return nil, errors.Join(fmt.Errorf("open the agent's stream: %w", err), unix.Close(in), unix.Close(out))
		}
	}
	return &pipes{os.NewFile(uintptr(in), "agent-in"), os.NewFile(uintptr(out), "agent-out")}, nil
}

func (p *pipes) Read(b []byte) (int, error)         { return p.in.Read(b) }
func (p *pipes) Write(b []byte) (int, error)        { return p.out.Write(b) }
func (p *pipes) SetReadDeadline(t time.Time) error  { return p.in.SetReadDeadline(t) }
func (p *pipes) SetWriteDeadline(t time.Time) error { return p.out.SetWriteDeadline(t) }
func (p *pipes) Close() error                       { return errors.Join(p.in.Close(), p.out.Close()) }

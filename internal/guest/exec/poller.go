package exec

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/guest/rawio"
)

// poller waits for several descriptors in one goroutine, without a thread: an
// epoll instance that Go's own poller watches. Its events come in the order in
// which the descriptors became ready.
type poller struct {
	fd     int
	file   *os.File // owns fd
	raw    syscall.RawConn
	events [8]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	// os.NewFile hands only non-blocking descriptors to Go's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	return &poller{fd: fd, file: file, raw: raw}, nil
}

func (p *poller) add(fd int) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// wantWrite asks for events when fd can be written, beside those for reading.
func (p *poller) wantWrite(fd int, on bool) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if on {
		e.Events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &e)
}

func (p *poller) remove(fd int) { _ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) }

// wait returns the next events. It ends with os.ErrDeadlineExceeded at the
// deadline and with os.ErrClosed after close. The result is valid until the
// next call.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	var n int
	var failed error
	err := p.raw.Read(func(fd uintptr) bool {
		n, failed = rawio.Ready(int(fd), p.events[:])
		if errors.Is(failed, unix.EINTR) {
			n, failed = rawio.Ready(int(fd), p.events[:])
		}
		return n > 0 || failed != nil
	})
	if err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, fmt.Errorf("wait for descriptors: %w", failed)
	}
	return p.events[:n], nil
}

// deadline bounds waits; the zero time lifts the bound. Any goroutine may set it.
func (p *poller) deadline(t time.Time) { _ = p.file.SetReadDeadline(t) }

// wake makes the current or next wait return os.ErrDeadlineExceeded.
func (p *poller) wake() { p.deadline(time.Unix(1, 0)) }

func (p *poller) close() { p.file.Close() }

// newPipe returns a pipe whose read end does not block.
func newPipe() (r int, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, fmt.Errorf("create pipe: %w", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return -1, nil, fmt.Errorf("create pipe: %w", err)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "pipe"), nil
}

// readNow reads what is there. more is false when the descriptor is known to be
// empty now; eof when nothing will come any more.
func readNow(fd int, buf []byte) (n int, more, eof bool) {
	for {
		n, err := rawio.Read(fd, buf)
		switch {
		case err == nil && n == 0:
			return 0, false, true
		case err == nil:
			return n, n == len(buf), false
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, false, false
		default:
			return 0, false, true
		}
	}
}

package cli

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// cancelReader reads a file descriptor of any kind and can be told to stop
// while a read waits. An *os.File cannot: a descriptor that we inherit blocks,
// and making it non-blocking would change it for the other processes that have it.
type cancelReader struct {
	in     *os.File
	event  int // an eventfd that becomes readable at cancel
	once   sync.Once
	closed sync.Once
}

func newCancelReader(in *os.File) (*cancelReader, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &cancelReader{in: in, event: fd}, nil
}

// Read reads what is there, waiting for the first byte. After cancel it returns os.ErrClosed.
func (r *cancelReader) Read(p []byte) (int, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(r.in.Fd()), Events: unix.POLLIN}, {Fd: int32(r.event), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, os.NewSyscallError("poll", err)
		case fds[1].Revents != 0:
			return 0, os.ErrClosed
		}
		// A closed descriptor 0, as of a program started with "<&-", is at its end.
		if fds[0].Revents&unix.POLLNVAL != 0 {
			return 0, io.EOF
		}
		return r.in.Read(p)
	}
}

// cancel makes the read that waits, and all later ones, return.
func (r *cancelReader) cancel() {
	r.once.Do(func() {
		one := [8]byte{1}
		_, _ = unix.Write(r.event, one[:]) // fails only if it is signalled already
	})
}

// close frees the reader, which must have been cancelled and be out of use.
func (r *cancelReader) close() {
	r.closed.Do(func() { unix.Close(r.event) })
}

package fake

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socketPair returns two connected streams. They have the kernel's buffers, as
// a real machine's streams do; net.Pipe has none and deadlocks code that is right.
func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	fa, fb := os.NewFile(uintptr(fds[0]), "host end"), os.NewFile(uintptr(fds[1]), "guest end")
	defer fa.Close()
	defer fb.Close()
	a, err = net.FileConn(fa)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	b, err = net.FileConn(fb)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socketpair: %w", err), a.Close())
	}
	return a, b, nil
}

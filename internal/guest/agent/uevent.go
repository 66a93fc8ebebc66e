package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// awaitUevent waits until check says yes, and asks it again after each event
// of the kernel about a device. It subscribes before it asks, so that no event
// is lost between the two.
func awaitUevent(timeout time.Duration, check func() (bool, error)) error {
	deadline := time.Now().Add(timeout)
	fd, err := subscribeUevents()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	for {
		if ok, err := check(); ok || err != nil {
			return err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for uevent: %w", err)
		}
		for { // one check answers all events that are there
			_, _, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("read uevent: %w", err)
			}
		}
	}
}

// subscribeUevents returns a non-blocking socket that gets the kernel's events.
func subscribeUevents() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return -1, fmt.Errorf("uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("uevent socket: %w", err)
	}
	return fd, nil
}

// openUevents returns the kernel's events, one with each Read, until it is closed.
func openUevents() (*os.File, error) {
	fd, err := subscribeUevents()
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "uevents"), nil
}

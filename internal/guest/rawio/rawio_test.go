package rawio

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNonBlockingCalls(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, pair[0], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(pair[0])}); err != nil {
		t.Fatal(err)
	}
	var events [4]unix.EpollEvent
	buf := make([]byte, 10)
	if n, err := Ready(epoll, events[:]); n != 0 || err != nil {
		t.Fatalf("%d events of an empty socket, %v", n, err)
	}
	if _, err := Read(pair[0], buf); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("read of an empty socket: %v", err)
	}
	for _, put := range []func(int, []byte) (int, error){Write, Send} {
		if n, err := put(pair[1], []byte("abc")); n != 3 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		if n, err := Ready(epoll, events[:]); n != 1 || err != nil || events[0].Fd != int32(pair[0]) {
			t.Fatalf("%d events, %v", n, err)
		}
		if n, err := Read(pair[0], buf); n != 3 || err != nil || string(buf[:n]) != "abc" {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
	}
	unix.Close(pair[1])
	if n, err := Read(pair[0], buf); n != 0 || err != nil {
		t.Fatalf("read at the end: %d, %v", n, err)
	}
	if _, err := Send(pair[0], []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Fatalf("send to nobody: %v", err)
	}
}

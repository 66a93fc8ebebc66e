// Package rawio makes system calls on descriptors that do not block, without
// telling Go's scheduler.
//
// An ordinary call announces itself, because it might block: that wakes the
// runtime's monitor thread when the process was idle, and lets it hand the
// processor to another thread when the call takes longer than some 20 µs. In an
// emulated guest a call does, so every small request woke two more threads on
// the machine's other CPUs. Calls on non-blocking descriptors need none of it.
//
// It must never be used on a descriptor that may block: the process would stop.
package rawio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Read is read(2). The descriptor must be non-blocking.
func Read(fd int, p []byte) (int, error) {
	return finish(unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// Write is write(2). The descriptor must be non-blocking.
func Write(fd int, p []byte) (int, error) {
	return finish(unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// Send is send(2) without a signal when the other end is gone. The socket must
// be non-blocking.
func Send(fd int, p []byte) (int, error) {
	return finish(unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
		unix.MSG_NOSIGNAL, 0, 0))
}

// Ready is epoll_wait(2) that does not wait: the events that are there now.
func Ready(epoll int, events []unix.EpollEvent) (int, error) {
	return finish(unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), 0, 0, 0))
}

func finish(n, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

package agent

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctlBytes calls ioctl(2) with a pointer to a structure in memory.
func ioctlBytes(f *os.File, request uintptr, data []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(&data[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

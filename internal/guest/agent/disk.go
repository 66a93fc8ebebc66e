package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// resizeTimeout bounds the wait for a new size of the disk to reach the guest.
const resizeTimeout = 5 * time.Second

// growDisk grows the mounted root filesystem to the size of its device and
// returns its new size in bytes. When atLeast is not 0, it first waits for the
// device to have that many bytes: a resize on the host reaches the guest by an
// interrupt, some time later.
func growDisk(atLeast uint64) (uint64, error) {
	device, err := os.Open(rootDevice)
	if err != nil {
		return 0, err
	}
	defer device.Close()
	var size uint64
	err = awaitUevent(resizeTimeout, func() (bool, error) {
		var b [8]byte
		if err := ioctlBytes(device, unix.BLKGETSIZE64, b[:]); err != nil {
			return false, err
		}
		size = binary.NativeEndian.Uint64(b[:])
		return size >= atLeast, nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the disk has %d bytes, not %d: %w", size, atLeast, err)
	}
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", rootDevice, err)
	}
	root, err := os.Open("/")
	if err != nil {
		return 0, err
	}
	defer root.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return 0, err
	}
	const resize = 0x40086610 // EXT4_IOC_RESIZE_FS
	blocks := size / uint64(st.Bsize)
	if err := ioctlBytes(root, resize, binary.NativeEndian.AppendUint64(nil, blocks)); err != nil {
		return 0, fmt.Errorf("grow the filesystem to %d blocks: %w", blocks, err)
	}
	return blocks * uint64(st.Bsize), nil
}

// syncDisk writes the dirty data of the root filesystem to the disk.
func syncDisk() error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	return unix.Syncfs(int(root.Fd()))
}

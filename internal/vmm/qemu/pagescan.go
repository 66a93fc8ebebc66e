package qemu

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The PAGEMAP_SCAN ioctl of Linux 6.7: the kernel picks the pages, and skips what is not
// mapped, where reading the pagemap takes 8 bytes for every page that could be.
// https://docs.kernel.org/admin-guide/mm/pagemap.html
const (
	pagemapScan = 0xc0606610 // _IOWR('f', 16, struct pm_scan_arg)

	scanFile    = 1 << 2
	scanPresent = 1 << 3
	scanSwapped = 1 << 4
	scanZero    = 1 << 5
)

// scanArg is struct pm_scan_arg.
type scanArg struct {
	size              uint64
	flags             uint64
	start, end        uint64
	walkEnd           uint64
	vec, vecLen       uint64
	maxPages          uint64
	categoryInverted  uint64
	categoryMask      uint64
	categoryAnyofMask uint64
	returnMask        uint64
}

// scanRegion is struct page_region.
type scanRegion struct{ start, end, categories uint64 }

// scanBatch is how many regions one call returns at most.
const scanBatch = 4096

// errNoScan says that the kernel does not have the ioctl.
var errNoScan = errors.New("the kernel cannot scan page maps")

// scanRuns calls do for every run of pages in r that are the process's own copies, with
// the offset in r and the length in bytes. Pages that are the kernel's one page of
// zeros are left out: that is what the memory has anyway.
func scanRuns(pagemap *os.File, r memRange, do func(offset, size uint64) error) error {
	regions := make([]scanRegion, scanBatch)
	arg := scanArg{
		size: uint64(unsafe.Sizeof(scanArg{})), start: r.start, end: r.start + r.size,
		vec: uint64(uintptr(unsafe.Pointer(&regions[0]))), vecLen: scanBatch,
		categoryInverted: scanFile | scanZero, categoryMask: scanFile | scanZero, categoryAnyofMask: scanPresent | scanSwapped,
	}
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, pagemap.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		switch {
		case errno == unix.ENOTTY || errno == unix.EINVAL && arg.start == r.start:
			return errNoScan
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return fmt.Errorf("find dirty pages: %w", errno)
		}
		for _, g := range regions[:n] {
			if err := do(g.start-r.start, g.end-g.start); err != nil {
				return err
			}
		}
		if n < scanBatch {
			return nil
		}
		// Not walk_end: the kernel leaves it at an earlier place when its own buffer was full once.
		arg.start = regions[n-1].end
	}
}

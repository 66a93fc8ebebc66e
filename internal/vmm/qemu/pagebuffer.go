package qemu

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
)

const (
	// bufferSlack is room for pages that are written between counting and pausing.
	bufferSlack = 4 << 20
	// readBatch is how many runs one call copies; the kernel's limit is 1024.
	readBatch = 1024
	// madvPopulateWrite is MADV_POPULATE_WRITE of Linux 5.14.
	madvPopulateWrite = 23
)

// pageBuffer takes the pages of a machine that stands still. It is memory that was made
// before, so that the pause is for copying alone. Its file is a page file, whole after
// finish.
type pageBuffer struct {
	file *os.File // a memfd
	data []byte   // its mapping
	used int
	runs []bufferedRun
}

// bufferedRun is a run of pages, in the buffer at its place in the order.
type bufferedRun struct {
	region       uint32
	offset, size uint64 // in the region, bytes
}

// newPageBuffer makes a buffer for about so many bytes.
func newPageBuffer(size uint64) (*pageBuffer, error) {
	fd, err := unix.MemfdCreate("ramet-pages", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a page buffer: %w", err)
	}
	b := &pageBuffer{file: os.NewFile(uintptr(fd), "pages in memory")}
	if err := b.grow(int(size) + int(size)/8 + bufferSlack); err != nil {
		return nil, errors.Join(err, b.close())
	}
	// Older kernels make the pages as they are written.
	if err := unix.Madvise(b.data, madvPopulateWrite); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(fmt.Errorf("make a page buffer: %w", err), b.close())
	}
	b.used = copy(b.data, snapshot.PagesMagic)
	return b, nil
}

// grow makes the buffer at least n bytes large.
func (b *pageBuffer) grow(n int) error {
	if err := b.file.Truncate(int64(n)); err != nil {
		return fmt.Errorf("grow a page buffer: %w", err)
	}
	data, err := unix.Mmap(int(b.file.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("grow a page buffer: %w", err)
	}
	old := b.data
	b.data = data
	if old != nil {
		if err := unix.Munmap(old); err != nil {
			return fmt.Errorf("grow a page buffer: %w", err)
		}
	}
	return nil
}

// copy takes the process's own pages of a region.
func (b *pageBuffer) copy(pid int, region uint32, r memRange) error {
	var batch []unix.RemoteIovec
	var size int
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if b.used+size > len(b.data) {
			if err := b.grow(2*len(b.data) + size); err != nil {
				return err
			}
		}
		if err := readMany(pid, batch, b.data[b.used:b.used+size]); err != nil {
			return err
		}
		b.used += size
		batch, size = batch[:0], 0
		return nil
	}
	err := ownRuns(pid, r, snapshot.MaxRun, func(offset, n uint64) error {
		b.runs = append(b.runs, bufferedRun{region, offset, n})
		batch = append(batch, unix.RemoteIovec{Base: uintptr(r.start + offset), Len: int(n)})
		size += int(n)
		if len(batch) == readBatch {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// readMany fills buf from pieces of the process's memory, one after the other.
func readMany(pid int, from []unix.RemoteIovec, buf []byte) error {
	from = append([]unix.RemoteIovec(nil), from...)
	for len(buf) > 0 {
		local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
		n, err := unix.ProcessVMReadv(pid, local, from, 0)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("read guest memory: %w", err)
		}
		buf = buf[n:]
		for n > 0 { // a call may stop anywhere
			if n < from[0].Len {
				from[0].Base, from[0].Len = from[0].Base+uintptr(n), from[0].Len-n
				break
			}
			n, from = n-from[0].Len, from[1:]
		}
	}
	return nil
}

// bytes is how much memory was copied.
func (b *pageBuffer) bytes() int64 { return int64(b.used - len(snapshot.PagesMagic)) }

// each calls do for every run with its data.
func (b *pageBuffer) each(do func(region uint32, offset uint64, data []byte) error) error {
	at := len(snapshot.PagesMagic)
	for _, r := range b.runs {
		if err := do(r.region, r.offset, b.data[at:at+int(r.size)]); err != nil {
			return err
		}
		at += int(r.size)
	}
	return nil
}

// finish makes the buffer's file a page file and returns its size.
func (b *pageBuffer) finish() (int64, error) {
	x := snapshot.NewPageIndex()
	if err := b.each(x.Add); err != nil {
		return 0, err
	}
	end := x.End()
	if _, err := b.file.WriteAt(end, x.Size()); err != nil {
		return 0, fmt.Errorf("finish a page buffer: %w", err)
	}
	size := x.Size() + int64(len(end))
	// What was made ready and not needed goes back to the host.
	if err := b.file.Truncate(size); err != nil {
		return 0, fmt.Errorf("finish a page buffer: %w", err)
	}
	return size, nil
}

func (b *pageBuffer) close() error {
	var err error
	if b.data != nil {
		err = unix.Munmap(b.data)
		b.data = nil
	}
	return errors.Join(err, b.file.Close())
}

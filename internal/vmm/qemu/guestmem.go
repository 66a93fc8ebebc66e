package qemu

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
)

// Bits of an entry of /proc/PID/pagemap.
// https://docs.kernel.org/admin-guide/mm/pagemap.html
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61 // or shared anonymous
)

// pagemapChunk is how many entries are read at once.
const pagemapChunk = 16 << 10

// memRange is guest memory in the address space of a QEMU process.
type memRange struct {
	start, size uint64 // bytes
}

// ownPage says whether a page is the process's own copy. Of a private mapping
// of the golden, pages that were only read are pages of the file.
func ownPage(e uint64) bool {
	return e&pageSwapped != 0 || e&pagePresent != 0 && e&pageOfFile == 0
}

// ownRuns calls do for every run of pages in r that are the process's own,
// with the offset in r and the length in bytes; runs are at most maxRun long.
func ownRuns(pid int, r memRange, maxRun uint64, do func(offset, size uint64) error) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return fmt.Errorf("find dirty pages: %w", err)
	}
	defer f.Close()
	err = scanRuns(f, r, func(offset, size uint64) error {
		for ; size > 0; offset, size = offset+min(size, maxRun), size-min(size, maxRun) {
			if err := do(offset, min(size, maxRun)); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, errNoScan) {
		return err
	}
	return readRuns(f, r, maxRun, do)
}

// readRuns is ownRuns for kernels before 6.7.
func readRuns(f *os.File, r memRange, maxRun uint64, do func(offset, size uint64) error) error {
	buf := make([]byte, pagemapChunk*8)
	pages := r.size / snapshot.PageSize
	var start, length uint64 // of the run that grows, in bytes
	flush := func() error {
		if length == 0 {
			return nil
		}
		s, l := start, length
		length = 0
		return do(s, l)
	}
	for at := uint64(0); at < pages; at += pagemapChunk {
		n := min(pagemapChunk, pages-at)
		if _, err := f.ReadAt(buf[:n*8], int64(r.start/snapshot.PageSize+at)*8); err != nil {
			return fmt.Errorf("find dirty pages: %w", err)
		}
		for i := range n {
			if !ownPage(binary.LittleEndian.Uint64(buf[i*8:])) {
				continue
			}
			off := (at + i) * snapshot.PageSize
			if length > 0 && (start+length != off || length >= maxRun) {
				if err := flush(); err != nil {
					return err
				}
			}
			if length == 0 {
				start = off
			}
			length += snapshot.PageSize
		}
	}
	return flush()
}

// readMemory fills buf from the process's memory at addr.
func readMemory(pid int, addr uint64, buf []byte) error {
	for len(buf) > 0 {
		local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
		n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}, 0)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("read guest memory: %w", err)
		}
		buf, addr = buf[n:], addr+uint64(n)
	}
	return nil
}

// writeMemory writes buf to the process's memory at addr.
func writeMemory(pid int, addr uint64, buf []byte) error {
	for len(buf) > 0 {
		local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
		n, err := unix.ProcessVMWritev(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(buf)}}, 0)
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("place guest memory: %w", err)
		}
		buf, addr = buf[n:], addr+uint64(n)
	}
	return nil
}

// findMapping returns where the process has mapped size bytes of the file with
// the given inode from its start.
func findMapping(pid int, inode, size uint64) (memRange, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return memRange{}, fmt.Errorf("find guest memory: %w", err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		r, ok := parseMapping(s.Text(), inode)
		if ok && r.size == size {
			return r, nil
		}
	}
	if err := s.Err(); err != nil {
		return memRange{}, fmt.Errorf("find guest memory: %w", err)
	}
	return memRange{}, errors.New("find guest memory: it is not mapped")
}

// parseMapping parses "start-end perms offset dev inode path" and says whether
// it is of the inode, from offset 0.
func parseMapping(line string, inode uint64) (memRange, bool) {
	f := strings.Fields(line)
	if len(f) < 5 || strings.Trim(f[2], "0") != "" || f[4] != strconv.FormatUint(inode, 10) {
		return memRange{}, false
	}
	from, to, _ := strings.Cut(f[0], "-")
	start, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if err1 != nil || err2 != nil || end <= start {
		return memRange{}, false
	}
	return memRange{start, end - start}, true
}

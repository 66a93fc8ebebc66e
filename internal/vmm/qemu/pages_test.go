package qemu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/snapshot"
)

// private maps memory of a file privately, as a machine maps its golden memory.
func private(t *testing.T, size int) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("ramet-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

func rangeOf(mem []byte) memRange {
	return memRange{uint64(uintptr(unsafe.Pointer(&mem[0]))), uint64(len(mem))}
}

// scatter writes random pages and returns their numbers.
func scatter(mem []byte, n int) []int {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	written := map[int]bool{}
	for range n {
		p := r.IntN(len(mem) / snapshot.PageSize)
		written[p] = true
		mem[p*snapshot.PageSize+r.IntN(snapshot.PageSize)] = byte(1 + r.IntN(255))
	}
	pages := make([]int, 0, len(written))
	for p := range written {
		pages = append(pages, p)
	}
	slices.Sort(pages)
	return pages
}

// TestScanFindsWhatReadingFinds looks at more scattered pages than one call of the
// kernel's scan returns, and in its own buffer has room for.
func TestScanFindsWhatReadingFinds(t *testing.T) {
	mem := private(t, 256<<20)
	want := scatter(mem, 3*scanBatch)
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	for name, find := range map[string]func(do func(offset, size uint64) error) error{
		"scan": func(do func(offset, size uint64) error) error { return scanRuns(pagemap, rangeOf(mem), do) },
		"read": func(do func(offset, size uint64) error) error {
			return readRuns(pagemap, rangeOf(mem), snapshot.MaxRun, do)
		},
	} {
		var got []int
		err := find(func(offset, size uint64) error {
			for p := offset / snapshot.PageSize; p < (offset+size)/snapshot.PageSize; p++ {
				got = append(got, int(p))
			}
			return nil
		})
		if errors.Is(err, errNoScan) {
			t.Logf("%s: %v", name, err)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d pages, want %d", name, len(got), len(want))
		}
	}
}

// TestPageBuffer copies memory through a buffer that has to grow, and places it again.
func TestPageBuffer(t *testing.T) {
	mem := private(t, 64<<20)
	scatter(mem, 4000)
	copy(mem[16<<20:], make([]byte, 3<<20)) // written, and more than one run
	for i := range 3 << 20 {
		mem[16<<20+i] = byte(i >> 8)
	}
	b, err := newPageBuffer(0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for region := range uint32(2) {
		if err := b.copy(os.Getpid(), region, rangeOf(mem)); err != nil {
			t.Fatal(err)
		}
	}
	size, err := b.finish()
	if err != nil {
		t.Fatal(err)
	}
	placed := [][]byte{make([]byte, len(mem)), make([]byte, len(mem))}
	f := snapshot.File{Name: "pages", Size: size}
	limits := []uint64{uint64(len(mem)), uint64(len(mem))}
	if err := f.ReadPagesOf(b.file, limits, func(region uint32, offset uint64, data []byte) error {
		copy(placed[region][offset:], data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for region, p := range placed {
		if string(p) != string(mem) {
			t.Errorf("region %d differs", region)
		}
	}
}

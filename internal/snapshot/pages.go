package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A page file holds runs of pages of numbered memory regions:
//
//	magic | run data … | index entries | count uint32 | crc32c of index and count | magic
//
// All numbers are little endian. The index comes last because runs are written
// as they are found. Each run has its own checksum, checked when it is placed, and so
// has the index; a manifest has no further one of the file.
const (
	// PagesMagic begins and ends a page file.
	PagesMagic  = "RMTPAGE1"
	entrySize   = 24
	trailerSize = 8 + len(PagesMagic)
	// MaxRun is the largest run, in bytes.
	MaxRun = copyBuffer
	// maxRegions bounds the regions that a check looks at.
	maxRegions = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// run is one index entry.
type run struct {
	region uint32
	pages  uint32
	offset uint64 // in the region, bytes
	crc    uint32 // of the data
}

func (r run) bytes() int64 { return int64(r.pages) * PageSize }

func (r run) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.region)
	b = binary.LittleEndian.AppendUint32(b, r.pages)
	b = binary.LittleEndian.AppendUint64(b, r.offset)
	b = binary.LittleEndian.AppendUint32(b, r.crc)
	return binary.LittleEndian.AppendUint32(b, 0)
}

func parseRun(b []byte) run {
	return run{
		region: binary.LittleEndian.Uint32(b),
		pages:  binary.LittleEndian.Uint32(b[4:]),
		offset: binary.LittleEndian.Uint64(b[8:]),
		crc:    binary.LittleEndian.Uint32(b[16:]),
	}
}

// PageIndex makes the index of a page file whose data is in its place already.
type PageIndex struct {
	index []byte
	size  int64
	pages int64
}

// NewPageIndex begins the index of a file that has its magic.
func NewPageIndex() *PageIndex { return &PageIndex{size: int64(len(PagesMagic))} }

// Add enters the run that lies at Size in the file and at offset in the region: whole
// pages, at most MaxRun bytes.
func (x *PageIndex) Add(region uint32, offset uint64, data []byte) error {
	if len(data) == 0 || len(data)%PageSize != 0 || len(data) > MaxRun || offset%PageSize != 0 {
		return fmt.Errorf("page run of %d bytes at %#x is not whole pages", len(data), offset)
	}
	r := run{region, uint32(len(data) / PageSize), offset, crc32.Checksum(data, castagnoli)}
	x.index = r.append(x.index)
	x.pages += int64(r.pages)
	x.size += int64(len(data))
	return nil
}

// Pages is the number of pages so far, Size the size of the file without its end, in bytes.
func (x *PageIndex) Pages() int64 { return x.pages }

// Size is the size of the file so far, in bytes.
func (x *PageIndex) Size() int64 { return x.size }

// End is what follows the last run in the file.
func (x *PageIndex) End() []byte {
	tail := binary.LittleEndian.AppendUint32(x.index, uint32(len(x.index)/entrySize))
	tail = binary.LittleEndian.AppendUint32(tail, crc32.Checksum(tail, castagnoli))
	return append(tail, PagesMagic...)
}

// PageWriter writes a page file, run by run.
type PageWriter struct {
	w   *bufio.Writer
	x   *PageIndex
	end int64 // size of the end, once written
	err error // of the magic
}

// NewPageWriter begins a page file. It is whole after Finish.
func NewPageWriter(w io.Writer) *PageWriter {
	p := &PageWriter{w: bufio.NewWriterSize(w, copyBuffer), x: NewPageIndex()}
	p.err = p.write([]byte(PagesMagic))
	return p
}

// Add appends a run: whole pages, at most MaxRun bytes, that lie at offset in the region.
func (w *PageWriter) Add(region uint32, offset uint64, data []byte) error {
	if w.err != nil {
		return w.err
	}
	if err := w.x.Add(region, offset, data); err != nil {
		return err
	}
	return w.write(data)
}

// Pages is the number of pages added so far, Size that of the file in bytes.
func (w *PageWriter) Pages() int64 { return w.x.Pages() }

// Size is the size of the file so far, in bytes.
func (w *PageWriter) Size() int64 { return w.x.Size() + w.end }

func (w *PageWriter) write(b []byte) error {
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("write pages: %w", err)
	}
	return nil
}

// Finish writes the index.
func (w *PageWriter) Finish() error {
	if w.err != nil {
		return w.err
	}
	end := w.x.End()
	w.end = int64(len(end))
	if err := w.write(end); err != nil {
		return err
	}
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("write pages: %w", err)
	}
	return nil
}

// ReadPages calls place for every run of the page file f in dir, in the order
// written. A region's offsets are checked against the limits (bytes), by region
// number. The data is only valid during the call.
func (f File) ReadPages(dir string, limits []uint64, place func(region uint32, offset uint64, data []byte) error) error {
	file, err := f.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.ReadPagesOf(file, limits, place)
}

// verifyPages checks all checksums of a page file.
func (f File) verifyPages(dir string) error {
	limits := make([]uint64, maxRegions)
	for i := range limits {
		limits[i] = 1 << 63
	}
	return f.ReadPages(dir, limits, func(uint32, uint64, []byte) error { return nil })
}

// ReadPagesOf is ReadPages for a file that is open already.
func (f File) ReadPagesOf(file *os.File, limits []uint64, place func(region uint32, offset uint64, data []byte) error) error {
	st, err := file.Stat()
	if err != nil {
		return fmt.Errorf("read pages: %w", err)
	}
	if st.Size() != f.Size {
		return &CorruptError{file.Name(), fmt.Sprintf("it has %d bytes instead of %d", st.Size(), f.Size)}
	}
	runs, err := readIndex(file, f.Size)
	if err != nil {
		return &CorruptError{file.Name(), err.Error()}
	}
	buf := make([]byte, MaxRun)
	at := int64(len(PagesMagic))
	for _, r := range runs {
		if int(r.region) >= len(limits) || r.offset+uint64(r.bytes()) > limits[r.region] {
			return &CorruptError{file.Name(), fmt.Sprintf("a run at %#x of region %d is outside of it", r.offset, r.region)}
		}
		data := buf[:r.bytes()]
		if _, err := file.ReadAt(data, at); err != nil {
			return fmt.Errorf("read pages: %w", err)
		}
		if crc32.Checksum(data, castagnoli) != r.crc {
			return &CorruptError{file.Name(), fmt.Sprintf("the checksum of the run at %#x is wrong", r.offset)}
		}
		if err := place(r.region, r.offset, data); err != nil {
			return err
		}
		at += r.bytes()
	}
	return nil
}

// readIndex reads and checks the index of a page file of size bytes.
func readIndex(r io.ReaderAt, size int64) ([]run, error) {
	if size < int64(len(PagesMagic)+trailerSize) {
		return nil, errors.New("it is too short")
	}
	head, tail := make([]byte, len(PagesMagic)), make([]byte, trailerSize)
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if _, err := r.ReadAt(tail, size-int64(trailerSize)); err != nil {
		return nil, err
	}
	if string(head) != PagesMagic || string(tail[8:]) != PagesMagic {
		return nil, errors.New("it is not a page file")
	}
	count := int64(binary.LittleEndian.Uint32(tail))
	start := size - int64(trailerSize) - count*entrySize
	if start < int64(len(PagesMagic)) {
		return nil, errors.New("its index is longer than the file")
	}
	index := make([]byte, count*entrySize)
	if _, err := r.ReadAt(index, start); err != nil {
		return nil, err
	}
	if crc32.Checksum(append(index, tail[:4]...), castagnoli) != binary.LittleEndian.Uint32(tail[4:]) {
		return nil, errors.New("the checksum of its index is wrong")
	}
	runs, data := make([]run, count), int64(len(PagesMagic))
	for i := range runs {
		e := parseRun(index[i*entrySize:])
		if e.pages == 0 || e.bytes() > MaxRun || e.offset%PageSize != 0 || e.offset > 1<<62 {
			return nil, errors.New("its index has a bad entry")
		}
		runs[i], data = e, data+e.bytes()
	}
	if data != start {
		return nil, errors.New("its index does not match its data")
	}
	return runs, nil
}

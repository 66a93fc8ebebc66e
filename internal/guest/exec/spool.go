package exec

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// budget bounds what all journals together may hold.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take reserves n bytes if there is room.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// spool is the part of a journal that is on disk: records of a length (uvarint)
// and an event. The file has no name, so a crash leaves nothing behind. One
// goroutine appends, any number read below the size that was published to them.
type spool struct {
	file  *os.File
	size  int64
	index []mark // sparse, ascending; guarded by the journal's mu
	first uint64 // number of the first event in it
	// before is how many bytes of output came before it.
	before uint64
}

// mark says at which offset an event begins.
type mark struct {
	seq    uint64
	offset int64
}

// indexEvery is how many bytes lie between two marks at least.
const indexEvery = 1 << 20

func openSpool(dir string) (*spool, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &spool{file: os.NewFile(uintptr(fd), filepath.Join(dir, "journal"))}, nil
	}
	// Not every filesystem can make a file without a name.
	file, err := os.CreateTemp(dir, "journal-*")
	if err != nil {
		return nil, fmt.Errorf("open journal spool: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, fmt.Errorf("unlink journal spool: %w", err)
	}
	return &spool{file: file}, nil
}

// record encodes an event for the file.
func record(e *agentv1.Event) ([]byte, error) {
	n := proto.Size(e)
	b := binary.AppendUvarint(make([]byte, 0, n+binary.MaxVarintLen64), uint64(n))
	b, err := proto.MarshalOptions{}.MarshalAppend(b, e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return b, nil
}

// read decodes events from offset on, up to about max bytes of them but at
// least one, and returns the offset behind the last.
func (s *spool) read(offset, size int64, max int) ([]*agentv1.Event, int64, error) {
	var events []*agentv1.Event
	buf := make([]byte, min(int64(max), size-offset))
	if _, err := io.ReadFull(io.NewSectionReader(s.file, offset, size-offset), buf); err != nil {
		return nil, offset, fmt.Errorf("read journal: %w", err)
	}
	for len(buf) > 0 {
		n, head := binary.Uvarint(buf)
		if head <= 0 || uint64(len(buf)-head) < n {
			if len(events) > 0 {
				break
			}
			if head <= 0 || int64(head)+int64(n) > size-offset {
				return nil, offset, fmt.Errorf("read journal: %w", io.ErrUnexpectedEOF)
			}
			return s.read(offset, size, head+int(n)) // one event larger than max
		}
		var e agentv1.Event
		if err := proto.Unmarshal(buf[head:head+int(n)], &e); err != nil {
			return nil, offset, fmt.Errorf("decode event: %w", err)
		}
		events = append(events, &e)
		offset += int64(head) + int64(n)
		buf = buf[head+int(n):]
	}
	return events, offset, nil
}

// seek returns the mark at or before an event.
func (s *spool) seek(seq uint64) mark {
	best := mark{}
	for _, m := range s.index {
		if m.seq > seq {
			break
		}
		best = m
	}
	return best
}

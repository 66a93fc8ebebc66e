package wire

import (
	"net"
	"sync"
	"time"
)

const (
	// holdFor is how long the header of a message waits for its body.
	holdFor = time.Millisecond
	// holdMost is the longest write that waits, in bytes.
	holdMost = 4 << 10

	frameHeader   = 9
	typeHeaders   = 1
	flagEndStream = 1
	// clientPreface is what a client sends before its first frame, in bytes.
	clientPreface = 24
)

// Joined returns an HTTP/2 connection on conn whose messages take one write
// where they can. Go's implementation writes the HEADERS of a message before it
// has a look at the body. Each write on the port is an interrupt and a wake-up
// for the other end, so HEADERS that do not end their stream wait a moment for
// what follows them. client says which end this is.
func Joined(conn net.Conn, client bool) net.Conn {
	j := &joined{Conn: conn}
	if client {
		j.frames.left = clientPreface
	}
	return j
}

type joined struct {
	net.Conn

	mu     sync.Mutex
	frames frames
	held   []byte
	timer  *time.Timer // runs while bytes are held; nil before the first
	err    error       // of a write that the timer made
}

func (j *joined) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, j.err
	}
	open := j.frames.pass(p)
	if open && len(j.held)+len(p) <= holdMost {
		j.held = append(j.held, p...)
		if j.timer == nil {
			j.timer = time.AfterFunc(holdFor, j.release)
		} else {
			j.timer.Reset(holdFor)
		}
		return len(p), nil
	}
	if len(j.held) == 0 {
		return j.Conn.Write(p)
	}
	j.timer.Stop() // one that runs already finds nothing
	before := len(j.held)
	n, err := j.Conn.Write(append(j.held, p...))
	j.held = j.held[:0]
	return max(n-before, 0), err
}

// release writes what was held when nothing has followed it in time.
func (j *joined) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.held) == 0 || j.err != nil {
		return
	}
	_, j.err = j.Conn.Write(j.held)
	j.held = j.held[:0]
}

// Close drops what is held: nobody waits for half a message.
func (j *joined) Close() error {
	err := j.Conn.Close() // first, since it ends a write that blocks
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = j.held[:0]
	if j.timer != nil {
		j.timer.Stop()
	}
	return err
}

// frames follows the frames of a connection through the writes of its sender.
type frames struct {
	left   int // bytes of the present frame's payload that are to come
	header [frameHeader]byte
	have   int  // bytes of header that are there
	open   bool // the present frame is HEADERS without END_STREAM
}

// pass takes the next bytes and says whether they end with a HEADERS frame that
// is complete and does not end its stream.
func (f *frames) pass(p []byte) bool {
	for {
		n := min(f.left, len(p))
		f.left -= n
		p = p[n:]
		if len(p) == 0 {
			return f.left == 0 && f.have == 0 && f.open
		}
		n = copy(f.header[f.have:], p)
		p = p[n:]
		if f.have += n; f.have < frameHeader {
			return false
		}
		f.have = 0
		f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
		f.open = f.header[3] == typeHeaders && f.header[4]&flagEndStream == 0
	}
}

// Package console takes in what a guest and its monitor write, bounded, and also
// after a restart of the server. The drivers share it.
package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The files of a console in an instance directory.
const (
	GuestName   = "console.fifo"
	MonitorName = "stderr.fifo"
	LogName     = "console.log"
)

// Console is what is kept of a guest's console and of its monitor's own errors. Both
// come through FIFOs: a guest can write to either without end, so what is kept
// is bounded here and not by the monitor. When no server reads, the monitor gets
// EPIPE and drops the output; the next server opens the FIFO again.
type Console struct {
	limit int
	log   *os.File // copy of the tail that survives the server; may be nil

	mu    sync.Mutex
	tail  []byte // guarded by mu; at most limit bytes
	errs  []byte // guarded by mu; of the monitor, at most limit bytes
	saved int64  // guarded by mu; bytes in log
	lines *sync.Cond

	readers sync.WaitGroup
	files   []*os.File // read ends
	holders []*os.File // write ends that keep the readers from seeing the end
}

// Open makes the FIFOs in dir where they are missing and starts to read
// them. End it with Finish.
func Open(dir string, limit int) (*Console, error) {
	c := &Console{limit: limit}
	c.lines = sync.NewCond(&c.mu)
	log, err := os.OpenFile(filepath.Join(dir, LogName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open console log: %w", err)
	}
	c.log = log
	if old, err := io.ReadAll(io.LimitReader(log, int64(2*limit))); err == nil {
		c.tail = appendTail(nil, old, limit)
		c.saved = int64(len(old))
	}
	for _, f := range []struct {
		name string
		into *[]byte
	}{{GuestName, &c.tail}, {MonitorName, &c.errs}} {
		r, w, err := openFIFO(dir, f.name)
		if err != nil {
			return nil, errors.Join(err, c.Abandon())
		}
		c.files, c.holders = append(c.files, r), append(c.holders, w)
		c.readers.Go(func() { c.read(r, f.into) })
	}
	return c, nil
}

// openFIFO returns both ends. The write end never blocks the one who writes.
func openFIFO(dir, name string) (r, w *os.File, err error) {
	path := filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, nil, fmt.Errorf("make %s: %w", path, err)
	}
	r, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open console: %w", err)
	}
	w, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open console: %w", err), r.Close())
	}
	return r, w, nil
}

// WriterFor opens the monitor's end of a FIFO.
func WriterFor(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open console: %w", err)
	}
	return f, nil
}

func (c *Console) read(r *os.File, into *[]byte) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			c.add(into, buf[:n])
		}
		if err != nil {
			return // closed
		}
	}
}

func (c *Console) add(into *[]byte, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*into = appendTail(*into, b, c.limit)
	if into == &c.tail && c.log != nil {
		c.save(b)
	}
	c.lines.Broadcast()
}

// save keeps the log file between one and two times the limit. It is for
// people; when it cannot be written, what is in memory has to do.
func (c *Console) save(b []byte) {
	if c.saved+int64(len(b)) > int64(2*c.limit) {
		if c.log.Truncate(0) != nil {
			return
		}
		b, c.saved = c.tail, 0
	}
	n, _ := c.log.WriteAt(b, c.saved) // see above
	c.saved += int64(n)
}

// appendTail appends b and keeps the last limit bytes.
func appendTail(tail, b []byte, limit int) []byte {
	if len(b) >= limit {
		return append(tail[:0], b[len(b)-limit:]...)
	}
	if over := len(tail) + len(b) - limit; over > 0 {
		tail = append(tail[:0], tail[over:]...)
	}
	return append(tail, b...)
}

// String returns the console's tail and, apart from it, what the monitor complained about.
func (c *Console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := printable(c.tail)
	if len(c.errs) > 0 {
		if s != "" && !strings.HasSuffix(s, "\n") {
			s += "\n"
		}
		s += printable(c.errs)
	}
	return s
}

// MaxComplaint bounds what of the monitor's own output goes into an error, in bytes:
// errors are logged and kept in records.
const MaxComplaint = 1 << 10

// Stderr returns what the monitor complained about last, on one line.
func (c *Console) Stderr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.errs[max(0, len(c.errs)-MaxComplaint):]
	return strings.Join(strings.Fields(printable(last)), " ")
}

// WaitFor blocks until the console shows text or the context ends.
func (c *Console) WaitFor(ctx context.Context, text string) bool {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !bytes.Contains(c.tail, []byte(text)) {
		if ctx.Err() != nil {
			return false
		}
		c.lines.Wait()
	}
	return true
}

// Finish takes in what is still in the pipes and ends the readers. The
// machine's process must have ended.
func (c *Console) Finish() error {
	var errs []error
	for _, w := range c.holders {
		errs = append(errs, w.Close())
	}
	c.readers.Wait() // they read up to the end of file
	return errors.Join(append(errs, c.Abandon())...)
}

// Abandon ends the readers at once; the machine may go on.
func (c *Console) Abandon() error {
	var errs []error
	for _, f := range append(c.holders, c.files...) {
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	c.readers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log != nil {
		errs = append(errs, c.log.Close())
		c.log = nil
	}
	return errors.Join(errs...)
}

// printable makes text of a hostile guest safe to show: no control characters
// but newline and tab, valid UTF-8.
func printable(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || (r >= 0x20 && r != 0x7f && (r < 0x80 || r > 0x9f)) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(b), "?"))
}

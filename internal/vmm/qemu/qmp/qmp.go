// Package qmp speaks QEMU's machine protocol: JSON lines over a unix socket.
// It owns one connection: the greeting, commands and their answers, events
// for those who asked, and file descriptors sent along. It knows nothing of what the
// commands mean. Start reading at Client.
//
// QEMU has parsed bytes of a hostile guest, so what comes from it is not
// trusted either: lines are bounded and a bad one ends the connection.
package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxLine bounds one message from QEMU, in bytes. Real answers stay far below.
const maxLine = 4 << 20

// Error is a command that QEMU refused.
type Error struct {
	Command string
	Class   string // "GenericError", "CommandNotFound", …
	Desc    string
}

func (e *Error) Error() string { return fmt.Sprintf("qemu refused %s: %s", e.Command, e.Desc) }

// ErrClosed is the cause of calls that fail because the connection has ended.
var ErrClosed = errors.New("the connection to qemu's monitor has ended")

// Event is an asynchronous message of QEMU.
type Event struct {
	Name string
	Data json.RawMessage
}

// Client is one connection to a QMP server. It is safe for concurrent use.
type Client struct {
	conn *net.UnixConn
	done chan struct{} // closed when the reader has ended

	write sync.Mutex // held while a command is written

	mu      sync.Mutex
	next    uint64                // guarded by mu
	pending map[string]chan reply // guarded by mu; nil after the end
	subs    map[*Subscription]bool
	err     error // guarded by mu; set before done is closed
}

type reply struct {
	Return json.RawMessage
	Err    *Error
}

// Connect takes over conn, waits for the greeting and enables commands.
// The context bounds the handshake only. On error conn is closed.
func Connect(ctx context.Context, conn *net.UnixConn) (*Client, error) {
	c := &Client{
		conn:    conn,
		done:    make(chan struct{}),
		pending: make(map[string]chan reply),
		subs:    make(map[*Subscription]bool),
	}
	greeted := make(chan struct{})
	go c.read(greeted)
	select {
	case <-greeted:
	case <-c.done:
		return nil, fmt.Errorf("qmp greeting: %w", c.closedErr())
	case <-ctx.Done():
		c.Close()
		return nil, fmt.Errorf("qmp greeting: %w", context.Cause(ctx))
	}
	if err := c.Run(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection and waits for its reader. Idempotent.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Run executes a command and decodes its answer into out, when out is not
// nil. The files are sent along (for getfd and add-fd). When the context ends
// first the command may still happen; its answer is dropped.
func (c *Client) Run(ctx context.Context, command string, args, out any, files ...*os.File) error {
	id, ch, err := c.register()
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	defer c.forget(id)
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        string `json:"id"`
	}{command, args, id})
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	if err := c.send(ctx, append(line, '\n'), files); err != nil {
		if errors.Is(err, net.ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrClosed, err) // Close was faster
		}
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	var r reply
	select {
	case r = <-ch:
	case <-c.done:
		return fmt.Errorf("qmp %s: %w", command, c.closedErr())
	case <-ctx.Done():
		return fmt.Errorf("qmp %s: %w", command, context.Cause(ctx))
	}
	if r.Err != nil {
		r.Err.Command = command
		return r.Err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(r.Return, out); err != nil {
		return fmt.Errorf("qmp %s: answer: %w", command, err)
	}
	return nil
}

func (c *Client) register() (string, chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == nil {
		return "", nil, c.closedErrLocked()
	}
	c.next++
	id, ch := strconv.FormatUint(c.next, 10), make(chan reply, 1)
	c.pending[id] = ch
	return id, ch, nil
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// send writes one whole line. A write that was cut short leaves the stream
// unusable, so it ends the connection.
func (c *Client) send(ctx context.Context, line []byte, files []*os.File) error {
	c.write.Lock()
	defer c.write.Unlock()
	// Also when it ended while others wrote. A deadline in the past would make
	// the write fail, as if QEMU did not read.
	if err := context.Cause(ctx); err != nil {
		return err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(30 * time.Second) // a live QEMU reads at once
	}
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err) // it fails for no other reason
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(line, oob, nil)
	if err == nil && n < len(line) {
		_, err = c.conn.Write(line[n:])
	}
	runtime.KeepAlive(files) // their descriptors must stay open until here
	if err != nil && (n > 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
		c.conn.Close() // the reader sees it and fails everybody
	}
	if errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

func (c *Client) closedErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closedErrLocked()
}

func (c *Client) closedErrLocked() error {
	if c.err == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, c.err)
}

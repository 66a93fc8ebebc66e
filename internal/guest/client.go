package guest

//lint:file-ignore SA1019 x/net/http2 lets one connection be driven and its flow control be set; net/http hides both.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"

	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/wire"
)

const (
	// MaxMessage bounds one message from the guest, in bytes.
	MaxMessage = 16 << 20
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 64 << 10
	// frameSize is the largest frame that the guest may send, in bytes.
	frameSize = 512 << 10

	// A guest that has been silent for silence while a call is open is
	// pinged, and given up after patience more. Together with the tick they
	// stay under ten seconds.
	silence  = 4 * time.Second
	patience = 4 * time.Second
	tick     = time.Second
)

// ErrSilent is why a client has ended whose guest did not answer any more.
var ErrSilent = errors.New("the guest does not answer")

// Client is an open connection to a guest's agent. It is safe for concurrent
// use. After its end it stays ended: dial again.
//
// A guest is watched only while calls are open, so that a machine may be paused
// for any time between calls without losing its client.
type Client struct {
	machine agentv1connect.MachineClient
	exec    agentv1connect.ExecClient
	files   agentv1connect.FilesClient
	ports   agentv1connect.PortsClient

	conn  *watchedConn
	h2    *http2.ClientConn
	calls atomic.Int64  // open now
	busy  chan struct{} // a call was opened while there was none

	once    sync.Once
	err     error // set before closed is closed
	closed  chan struct{}
	watched sync.WaitGroup
}

// Dial opens a session on conn, the host's end of the machine's agent port, and
// owns conn from then on. It waits for a guest that is still booting, at most
// until ctx ends; ctx does not bound the client's life.
func Dial(ctx context.Context, conn net.Conn) (*Client, error) {
	stream, err := wire.Dial(ctx, conn)
	if err != nil {
		return nil, err
	}
	c := &Client{busy: make(chan struct{}, 1), closed: make(chan struct{})}
	c.conn = &watchedConn{Conn: stream, client: c, epoch: time.Now()}
	transport := &http2.Transport{
		AllowHTTP:          true,
		DisableCompression: true,
		MaxReadFrameSize:   frameSize,
		MaxHeaderListSize:  maxHeader,
	}
	c.h2, err = transport.NewClientConn(wire.Joined(c.conn, true))
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("open HTTP/2 to the agent: %w", err)
	}
	const base = "http://agent"
	options := connect.WithClientOptions(
		connect.WithReadMaxBytes(MaxMessage),
		connect.WithAcceptCompression("gzip", nil, nil),
	)
	c.machine = agentv1connect.NewMachineClient(c, base, options)
	c.exec = agentv1connect.NewExecClient(c, base, options)
	c.files = agentv1connect.NewFilesClient(c, base, options)
	c.ports = agentv1connect.NewPortsClient(c, base, options)
	c.watched.Go(c.watch)
	return c, nil
}

// Machine returns the client of the guest as a whole.
func (c *Client) Machine() agentv1connect.MachineClient { return c.machine }

// Exec returns the client that runs code and programs.
func (c *Client) Exec() agentv1connect.ExecClient { return c.exec }

// Files returns the client of the guest's files.
func (c *Client) Files() agentv1connect.FilesClient { return c.files }

// Ports returns the client that reaches what listens in the guest.
func (c *Client) Ports() agentv1connect.PortsClient { return c.ports }

// Closed is closed when the client has ended, by Close or otherwise.
func (c *Client) Closed() <-chan struct{} { return c.closed }

// Err says why the client has ended: net.ErrClosed after Close, ErrSilent, or
// the connection's error. It is nil while the client lives.
func (c *Client) Err() error {
	select {
	case <-c.closed:
		return c.err
	default:
		return nil
	}
}

// Close ends the client and the calls that are open. Runs in the guest go on.
func (c *Client) Close() error {
	c.fail(net.ErrClosed)
	c.watched.Wait()
	return nil
}

func (c *Client) fail(err error) {
	if err == io.EOF {
		// The end of the connection is not that of a stream, which readers of one would
		// take it for.
		err = io.ErrUnexpectedEOF
	}
	c.once.Do(func() {
		c.err = err
		close(c.closed)
		_ = c.conn.Conn.Close() // its reader then ends every call
	})
}

// Do sends one request to the guest. It is what the clients of the services
// use; there is no other reason to call it.
func (c *Client) Do(request *http.Request) (*http.Response, error) {
	if err := c.Err(); err != nil {
		return nil, &unreachableError{err}
	}
	if c.calls.Add(1) == 1 {
		c.conn.heard.Store(int64(time.Since(c.conn.epoch)))
		select {
		case c.busy <- struct{}{}:
		default:
		}
	}
	response, err := c.h2.RoundTrip(request)
	if err != nil {
		c.calls.Add(-1)
		if request.Context().Err() != nil {
			return nil, err
		}
		return nil, c.explain(err)
	}
	response.Body = &countedBody{ReadCloser: response.Body, client: c}
	return response, nil
}

// explain tells the failure of one call from the end of the connection.
func (c *Client) explain(err error) error {
	if !c.h2.CanTakeNewRequest() {
		c.fail(err) // the guest said goodbye
	}
	if cause := c.Err(); cause != nil {
		return &unreachableError{cause}
	}
	return err
}

// watch pings a guest that is silent while it owes an answer.
func (c *Client) watch() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if c.calls.Load() == 0 {
			ticker.Stop()
			select {
			case <-c.busy:
			case <-c.closed:
				return
			}
			ticker.Reset(tick)
		}
		select {
		case <-ticker.C:
		case <-c.closed:
			return
		}
		if c.calls.Load() == 0 || c.conn.quiet() < silence {
			continue
		}
		if !c.answersPing() {
			c.fail(ErrSilent)
			return
		}
	}
}

func (c *Client) answersPing() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.h2.Ping(ctx) == nil
}

// watchedConn notes when the guest was last heard, and tells the client when
// the connection breaks, also while no call is open.
type watchedConn struct {
	net.Conn
	client *Client
	epoch  time.Time
	heard  atomic.Int64 // nanoseconds since epoch
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.epoch)))
	}
	if err != nil {
		w.client.fail(err)
	}
	return n, err
}

func (w *watchedConn) quiet() time.Duration {
	return time.Since(w.epoch) - time.Duration(w.heard.Load())
}

// countedBody is the body of an answer. Closing it ends its call.
type countedBody struct {
	io.ReadCloser
	client *Client
	once   sync.Once
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.client.explain(err)
	}
	return n, err
}

func (b *countedBody) Close() error {
	b.once.Do(func() { b.client.calls.Add(-1) })
	return b.ReadCloser.Close()
}

package ports

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/guest/tunnel"
	"ramet.dev/ramet/internal/guest/wire"
)

// start serves the ports of this machine over the agent's byte stream.
func start(t *testing.T) agentv1connect.PortsClient {
	t.Helper()
	return serve(t, New())
}

func serve(t *testing.T, service *Service) agentv1connect.PortsClient {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewPortsHandler(service))
	hostEnd, guestEnd := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := wire.Serve(ctx, guestEnd, mux, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
		service.Close()
	})
	client, err := guest.Dial(t.Context(), hostEnd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return client.Ports()
}

// dial connects as the host does.
func dial(t *testing.T, c agentv1connect.PortsClient, port int) (*tunnel.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	call, err := c.Dial(ctx)
	if err == nil {
		err = call.Send(&agentv1.DialRequest{Port: uint32(port)})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := call.Receive(); err != nil {
		cancel()
		return nil, err
	}
	conn := tunnel.New(tunnel.Link{
		Send: func(f tunnel.Frame) error {
			return call.Send(&agentv1.DialRequest{Data: f.Data, Eof: f.EOF, Taken: f.Taken})
		},
		Receive: func() (tunnel.Frame, error) {
			m, err := call.Receive()
			return tunnel.Frame{Data: m.GetData(), EOF: m.GetEof(), Taken: m.GetTaken()}, err
		},
		Finish: func() { _ = call.CloseRequest() },
		Abort: func() {
			cancel()
			_ = call.CloseRequest() // else HTTP/2 waits for more of it
		},
	})
	t.Cleanup(func() {
		conn.Abort()
		<-conn.Done()
	})
	return conn, nil
}

// listen serves connections one after the other.
func listen(t *testing.T, address string, serve func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn.(*net.TCPConn))
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

// TestServiceOnLoopbackAlone: a service that is bound to 127.0.0.1 is reached, data arrives
// whole both ways, and each side learns that the other sends no more.
func TestServiceOnLoopbackAlone(t *testing.T) {
	c := start(t)
	port := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		defer conn.Close()
		all, err := io.ReadAll(conn) // until the half-close
		if err == nil {
			_, err = conn.Write(all)
		}
		if err != nil {
			t.Error(err)
		}
	})
	conn, err := dial(t, c, port)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4<<20)
	rand.Read(data)
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	<-conn.Done()
}

func TestServiceOnIPv6Alone(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6:", err)
	} else {
		l.Close()
	}
	c := start(t)
	port := listen(t, "[::1]:0", func(conn *net.TCPConn) {
		defer conn.Close()
		if _, err := io.WriteString(conn, "six"); err != nil {
			t.Error(err)
		}
	})
	conn, err := dial(t, c, port)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "six" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestNothingListens(t *testing.T) {
	c := start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	_, err = dial(t, c, port)
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Code() != connect.CodeFailedPrecondition || refused.Meta().Get(errnoKey) != "ECONNREFUSED" {
		t.Fatal(err)
	}
	for _, port := range []int{0, 65536} {
		if _, err := dial(t, c, port); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// TestProgramThatStopsReading: it holds up its own connection only, and the agent holds no more
// than a window of it.
func TestProgramThatStopsReading(t *testing.T) {
	c := start(t)
	release := make(chan struct{})
	var held sync.WaitGroup
	port := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		held.Go(func() {
			defer conn.Close()
			<-release
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Error(err)
			}
		})
	})
	defer held.Wait()
	defer sync.OnceFunc(func() { close(release) })()
	// More connections than the windows of HTTP/2 would carry, if they were what holds them up.
	conns := make([]*tunnel.Conn, 10)
	for i := range conns {
		conn, err := dial(t, c, port)
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
		if err := conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a program that does not read took %d bytes, %v", n, err)
		}
	}
	echo := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		defer conn.Close()
		if _, err := io.Copy(conn, conn); err != nil {
			t.Error(err)
		}
	})
	other, err := dial(t, c, echo)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Write([]byte("alive")); err != nil {
		t.Fatal(err)
	}
	if err := other.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(other); err != nil || string(got) != "alive" {
		t.Fatalf("%q, %v", got, err)
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResetIsPassedOn: a connection that breaks on one side does not end well on the other.
func TestResetIsPassedOn(t *testing.T) {
	c := start(t)
	seen := make(chan error, 1)
	reset := true
	port := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		if reset {
			reset = false
			_, _ = conn.Read(make([]byte, 1)) // it is connected
			_ = conn.SetLinger(0)
			conn.Close()
			return
		}
		_, err := conn.Read(make([]byte, 1))
		seen <- err
		conn.Close()
	})
	conn, err := dial(t, c, port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("a reset by the program was told as %v", err)
	}
	if conn, err = dial(t, c, port); err != nil {
		t.Fatal(err)
	}
	conn.Abort()
	if err := <-seen; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the program saw %v", err)
	}
}

func TestTooManyConnections(t *testing.T) {
	s := New()
	s.open = make(chan struct{}, 1)
	c := serve(t, s)
	port := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) {
		_, _ = io.Copy(io.Discard, conn) // until the other end goes
		conn.Close()
	})
	first, err := dial(t, c, port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, c, port); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatal(err)
	}
	first.Abort()
}

func TestListening(t *testing.T) {
	c := start(t)
	port := listen(t, "127.0.0.1:0", func(conn *net.TCPConn) { conn.Close() })
	r, err := c.Listening(t.Context(), &agentv1.ListeningRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.Ports, uint32(port)) || !slices.IsSorted(r.Ports) {
		t.Fatalf("port %d is not in %v", port, r.Ports)
	}
}

// TestHostileTable: what is no line of a table is skipped, and a table without end is not read.
func TestHostileTable(t *testing.T) {
	dir := t.TempDir()
	line := func(port int, state string) string {
		return "   0: 0100007F:" + strconv.FormatInt(int64(port), 16) + " 00000000:0000 " + state + " 0 0\n"
	}
	table := "sl local_address\n" + line(80, "0A") + line(81, "01") + "garbage\n 1: x 2 0A\n 1: :FFFFF 2 0A\n" + line(8080, "0A")
	if err := os.WriteFile(filepath.Join(dir, "tcp"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New()
	s.tables = dir
	r, err := s.Listening(t.Context(), nil)
	if err != nil || !slices.Equal(r.Ports, []uint32{80, 8080}) {
		t.Fatalf("%v, %v", r, err)
	}
}

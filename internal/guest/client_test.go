package guest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/guest/wire"
	"ramet.dev/ramet/internal/sandbox"
)

// agent answers like a guest. Its Exec and Files are as a test needs them.
type agent struct {
	agentv1connect.UnimplementedMachineHandler
	agentv1connect.UnimplementedFilesHandler
	hello     func(context.Context) error
	afterRead func(context.Context) // before the end of a Read
}

func (a *agent) Hello(ctx context.Context, _ *agentv1.HelloRequest) (*agentv1.HelloResponse, error) {
	if a.hello != nil {
		if err := a.hello(ctx); err != nil {
			return nil, err
		}
	}
	return &agentv1.HelloResponse{Protocol: 1}, nil
}

// Read sends as many bytes as the length asks for.
func (a *agent) Read(ctx context.Context, r *agentv1.ReadRequest, out *connect.ServerStream[agentv1.ReadResponse]) error {
	data := make([]byte, 256<<10)
	for sent := uint64(0); sent < r.Length; sent += uint64(len(data)) {
		if err := out.Send(&agentv1.ReadResponse{Data: data}); err != nil {
			return err
		}
	}
	if a.afterRead != nil {
		a.afterRead(ctx)
	}
	return nil
}

// serve runs an agent on one end of a pipe and returns the other end.
func serve(t testing.TB, a *agent) net.Conn {
	guestEnd, hostEnd := net.Pipe()
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewMachineHandler(a))
	mux.Handle(agentv1connect.NewFilesHandler(a))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- wire.Serve(ctx, guestEnd, mux, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		hostEnd.Close()
		<-done
	})
	return hostEnd
}

func dial(t testing.TB, conn net.Conn) *guest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := guest.Dial(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCallsAndLargeStreams(t *testing.T) {
	c := dial(t, serve(t, &agent{}))
	h, err := c.Machine().Hello(t.Context(), &agentv1.HelloRequest{})
	if err != nil || h.Protocol != 1 {
		t.Fatalf("%v, %v", h, err)
	}
	const size = 32 << 20
	r, err := c.Files().Read(t.Context(), &agentv1.ReadRequest{Path: "x", Length: size})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var n int
	for r.Receive() {
		n += len(r.Msg().Data)
	}
	if r.Err() != nil || n != size {
		t.Fatalf("%d bytes, %v", n, r.Err())
	}
	if _, err := c.Files().Stat(t.Context(), &agentv1.StatRequest{}); sandbox.KindOf(guest.Error(err)) != sandbox.Unsupported {
		t.Fatalf("an old agent's answer became %v", guest.Error(err))
	}
}

func TestSilentGuestFailsWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guestEnd, hostEnd := net.Pipe()
		gate := &gate{Conn: guestEnd, open: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		mux := http.NewServeMux()
		stuck := &agent{hello: func(context.Context) error {
			gate.shut.Store(true) // from now on nothing comes from the guest
			return nil
		}}
		mux.Handle(agentv1connect.NewMachineHandler(stuck))
		go func() { done <- wire.Serve(ctx, gate, mux, slog.New(slog.DiscardHandler)) }()
		c, err := guest.Dial(ctx, hostEnd)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = c.Machine().Hello(ctx, &agentv1.HelloRequest{})
		if d := time.Since(start); err == nil || d > 10*time.Second {
			t.Fatalf("error %v after %v", err, d)
		}
		var e *sandbox.Error
		if !errors.As(guest.Error(err), &e) || e.Code != "guest_unreachable" || e.Kind != sandbox.Unavailable {
			t.Fatalf("error %#v", guest.Error(err))
		}
		<-c.Closed()
		if !errors.Is(c.Err(), guest.ErrSilent) {
			t.Fatalf("the client ended with %v", c.Err())
		}
		if _, err = c.Machine().Hello(ctx, &agentv1.HelloRequest{}); !errors.Is(err, guest.ErrSilent) {
			t.Fatalf("a later call failed with %v", err)
		}
		close(gate.open)
		c.Close()
		cancel()
		<-done
	})
}

func TestLongCallsAndPausesAreNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guestEnd, hostEnd := net.Pipe()
		gate := &gate{Conn: guestEnd, open: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		mux := http.NewServeMux()
		slow := &agent{hello: func(ctx context.Context) error {
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		mux.Handle(agentv1connect.NewMachineHandler(slow))
		go func() { done <- wire.Serve(ctx, gate, mux, slog.New(slog.DiscardHandler)) }()
		c, err := guest.Dial(ctx, hostEnd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Machine().Hello(ctx, &agentv1.HelloRequest{}); err != nil {
			t.Fatalf("a call of ten minutes: %v", err)
		}
		synctest.Wait()
		gate.shut.Store(true) // the machine is paused between calls
		time.Sleep(time.Hour)
		gate.shut.Store(false)
		if _, err := c.Machine().Hello(ctx, &agentv1.HelloRequest{}); err != nil {
			t.Fatalf("after a pause: %v", err)
		}
		c.Close()
		cancel()
		<-done
	})
}

func TestLostConnection(t *testing.T) {
	release := make(chan struct{})
	a := &agent{hello: func(ctx context.Context) error {
		close(release)
		<-ctx.Done()
		return ctx.Err()
	}}
	conn := serve(t, a)
	c := dial(t, conn)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Machine().Hello(context.Background(), &agentv1.HelloRequest{})
		failed <- err
	}()
	<-release
	conn.Close() // the machine has been killed
	err := <-failed
	var e *sandbox.Error
	if !errors.As(guest.Error(err), &e) || e.Code != "guest_unreachable" {
		t.Fatalf("the open call: %#v (%v)", guest.Error(err), err)
	}
	<-c.Closed()
	if c.Err() == nil {
		t.Fatal("no reason")
	}
}

// socket ends as the socket of a machine does that is stopped: nobody has closed our end.
type socket struct{ net.Conn }

func (s socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

// The end of the connection is no end of a stream: a machine that was stopped must not look
// like an agent that breaks the protocol.
func TestLostConnectionInAStream(t *testing.T) {
	sent := make(chan struct{})
	conn := serve(t, &agent{afterRead: func(ctx context.Context) {
		close(sent)
		<-ctx.Done()
	}})
	c := dial(t, socket{conn})
	stream, err := c.Files().Read(t.Context(), &agentv1.ReadRequest{Length: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	<-sent
	conn.Close()
	var e *sandbox.Error
	if stream.Receive() || !errors.As(guest.Error(stream.Err()), &e) || e.Code != "guest_unreachable" {
		t.Errorf("the open stream: %#v (%v)", guest.Error(stream.Err()), stream.Err())
	}
}

func TestCanceledCallLeavesTheClient(t *testing.T) {
	entered := make(chan struct{}, 1)
	a := &agent{hello: func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	c := dial(t, serve(t, a))
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := c.Machine().Hello(ctx, &agentv1.HelloRequest{})
		failed <- err
	}()
	<-entered
	cancel()
	var e *sandbox.Error
	if err := <-failed; !errors.As(guest.Error(err), &e) || e.Code != "canceled" {
		t.Fatalf("error %#v", guest.Error(err))
	}
	if c.Err() != nil {
		t.Fatalf("the client ended: %v", c.Err())
	}
}

// TestTooLargeMessage checks that a guest cannot make the host hold a message
// of any size.
func TestTooLargeMessage(t *testing.T) {
	a := &huge{}
	guestEnd, hostEnd := net.Pipe()
	mux := http.NewServeMux()
	mux.Handle(agentv1connect.NewFilesHandler(a))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- wire.Serve(ctx, guestEnd, mux, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		hostEnd.Close()
		<-done
	}()
	c := dial(t, hostEnd)
	r, err := c.Files().Read(t.Context(), &agentv1.ReadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Receive() {
		t.Fatalf("a message of %d bytes was accepted", len(r.Msg().Data))
	}
	if sandbox.KindOf(guest.Error(r.Err())) != sandbox.Exhausted {
		t.Fatalf("error %v", r.Err())
	}
}

type huge struct {
	agentv1connect.UnimplementedFilesHandler
}

func (*huge) Read(_ context.Context, _ *agentv1.ReadRequest, out *connect.ServerStream[agentv1.ReadResponse]) error {
	return out.Send(&agentv1.ReadResponse{Data: bytes.Repeat([]byte("x"), guest.MaxMessage+1)})
}

// FuzzHostileGuest lets a guest answer the host's first call with any bytes.
func FuzzHostileGuest(f *testing.F) {
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	headers := []byte{0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88} // :status 200
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add(settings)
	f.Add(append(bytes.Clone(settings), headers...))
	f.Add(append(append(bytes.Clone(settings), headers...), 0, 0, 3, 0, 1, 0, 0, 0, 1, 8, 1, 8))
	f.Add(append(bytes.Clone(settings), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1))
	f.Add(append(bytes.Clone(settings), 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2))
	f.Fuzz(func(t *testing.T, answer []byte) {
		guestEnd, hostEnd := net.Pipe()
		l := wire.NewListener(guestEnd)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		hostile := make(chan error, 1)
		go func() {
			defer l.Close()
			conn, err := l.Accept(ctx)
			if err != nil {
				hostile <- err
				return
			}
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, conn)
			}()
			_, _ = conn.Write(answer)
			conn.Close()
			<-read
			hostile <- nil
		}()
		c, err := guest.Dial(ctx, hostEnd)
		if err == nil {
			_, err = c.Machine().Hello(ctx, &agentv1.HelloRequest{})
			c.Close()
			if err != nil && guest.Error(err) == nil {
				t.Fatal("the error was lost")
			}
		}
		if err := <-hostile; err != nil {
			t.Fatal(err)
		}
	})
}

package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// pair returns the two ends of a buffered stream, as virtio-serial is one.
func pair(t testing.TB) (guest, host net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// open makes a session from both ends.
func open(t testing.TB, ctx context.Context, l *Listener, host net.Conn) (server, client net.Conn) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept(ctx)
		accepted <- err
	}()
	client, err := Dial(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return server, client
}

// unclosable keeps a socket open when Dial or a client closes it, as the guest's
// port stays open when a host goes away.
type unclosable struct{ net.Conn }

func (unclosable) Close() error { return nil }

func exchange(t testing.TB, from, to net.Conn, text string) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		_, err := io.WriteString(from, text)
		failed <- err
	}()
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(to, buf); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if string(buf) != text {
		t.Fatalf("got %q, want %q", buf, text)
	}
}

func TestStaleBytesInBothDirections(t *testing.T) {
	ctx := testContext(t)
	guest, host := pair(t)
	stale := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{1}).Read(stale)
	// What a crash may leave: half a preamble of an earlier host, half a
	// reply of an earlier agent, and a whole one with another nonce.
	toGuest := bytes.Join([][]byte{stale, preambleMagic[:], {1, 2, 3}}, nil)
	toHost := bytes.Join([][]byte{stale, replyMagic[:], make([]byte, nonceSize), stale, replyMagic[:20]}, nil)
	if _, err := host.Write(toGuest); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := guest.Write(toHost)
		written <- err
	}()
	l := NewListener(&late{guest, written})
	server, client := open(t, ctx, l, host)
	exchange(t, client, server, "question")
	exchange(t, server, client, "answer")
}

// late is a port whose first write waits until the stale bytes are on their way.
type late struct {
	net.Conn
	written chan error
}

func (l *late) Write(p []byte) (int, error) {
	if l.written != nil {
		if err := <-l.written; err != nil {
			return 0, err
		}
		l.written = nil
	}
	return l.Conn.Write(p)
}

func TestNewPreambleEndsTheSession(t *testing.T) {
	ctx := testContext(t)
	guest, host := pair(t)
	l := NewListener(guest)
	first, client := open(t, ctx, l, host)
	exchange(t, client, first, "hello")
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, first)
		ended <- err
	}()
	// Half a message, then nobody: the next host comes on the same stream.
	if _, err := client.Write([]byte("half a mess")); err != nil {
		t.Fatal(err)
	}
	second, client := open(t, ctx, l, host)
	if err := <-ended; !errors.Is(err, ErrSuperseded) {
		t.Fatalf("the first session ended with %v", err)
	}
	if _, err := first.Write([]byte("late")); !errors.Is(err, ErrSuperseded) {
		t.Fatalf("a write to the first session: %v", err)
	}
	exchange(t, client, second, "again")
	exchange(t, second, client, "fine")
}

func TestBlockedWriterIsInterrupted(t *testing.T) {
	ctx := testContext(t)
	guest, host := pair(t)
	l := NewListener(guest)
	first, _ := open(t, ctx, l, host)
	wrote, read := make(chan error, 1), make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		buf := make([]byte, 1<<20)
		for { // nobody reads: it must block, and end with the session
			if _, err := first.Write(buf); err != nil {
				wrote <- err
				return
			}
		}
	}()
	<-started
	go func() {
		_, err := io.Copy(io.Discard, first)
		read <- err
	}()
	second, client := open(t, ctx, l, host)
	for _, c := range []chan error{wrote, read} {
		if err := <-c; !errors.Is(err, ErrSuperseded) {
			t.Fatalf("ended with %v", err)
		}
	}
	exchange(t, second, client, "fine")
}

func TestCloseEndsReadAndAcceptGoesOn(t *testing.T) {
	ctx := testContext(t)
	guest, host := pair(t)
	l := NewListener(guest)
	first, _ := open(t, ctx, l, host)
	read := make(chan error, 1)
	go func() {
		_, err := first.Read(make([]byte, 10))
		read <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("read ended with %v", err)
	}
	second, client := open(t, ctx, l, host)
	exchange(t, client, second, "again")
}

func TestAcceptEndsWithItsContext(t *testing.T) {
	guest, _ := pair(t)
	l := NewListener(guest)
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept(ctx)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

func TestDialGivesUp(t *testing.T) {
	t.Run("silent guest", func(t *testing.T) {
		_, host := pair(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := Dial(ctx, host); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		_, host := pair(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Dial(ctx, host); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("flood", func(t *testing.T) {
		guest, host := pair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 1<<20)
			for {
				if _, err := guest.Write(buf); err != nil {
					return
				}
			}
		}()
		if _, err := Dial(testContext(t), host); !errors.Is(err, ErrNoReply) {
			t.Fatalf("error %v", err)
		}
		<-done // the failed Dial has closed the stream
	})
}

// TestAnyChunks opens sessions over a port that hands out its bytes in pieces
// of any size, with any stale bytes before.
func TestAnyChunks(t *testing.T) {
	ctx := testContext(t)
	rapid.Check(t, func(rt *rapid.T) {
		guest, host := pair(t)
		defer guest.Close()
		defer host.Close()
		sizes := rapid.SliceOfN(rapid.IntRange(1, 40), 1, 50).Draw(rt, "sizes")
		l := NewListener(&choppy{Conn: guest, sizes: sizes})
		for range rapid.IntRange(1, 3).Draw(rt, "sessions") {
			stale := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "stale")
			cut := rapid.IntRange(0, 31).Draw(rt, "cut")
			stale = append(stale, preambleMagic[:cut]...)
			if _, err := host.Write(stale); err != nil {
				rt.Fatal(err)
			}
			server, client := open(t, ctx, l, unclosable{host})
			exchange(t, client, server, "question")
			exchange(t, server, client, "answer")
			server.Close()
		}
	})
}

type choppy struct {
	net.Conn
	sizes []int
	at    int
}

func (c *choppy) Read(p []byte) (int, error) {
	n := c.sizes[c.at%len(c.sizes)]
	c.at++
	return c.Conn.Read(p[:min(n, len(p))])
}

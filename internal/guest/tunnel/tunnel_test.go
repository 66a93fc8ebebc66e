package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type end struct {
	out, in chan Frame
	gone    context.Context // ends with either side's Abort
	abort   context.CancelFunc
	once    sync.Once
}

func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	gone, abort := context.WithCancel(context.Background())
	there, back := make(chan Frame, 64), make(chan Frame, 64)
	ends := []*end{{out: there, in: back, gone: gone, abort: abort}, {out: back, in: there, gone: gone, abort: abort}}
	a, b = New(ends[0].link()), New(ends[1].link())
	t.Cleanup(func() {
		a.Abort()
		b.Abort()
		<-a.Done()
		<-b.Done()
	})
	return a, b
}

func (e *end) link() Link {
	return Link{
		Send: func(f Frame) error {
			f.Data = bytes.Clone(f.Data)
			select {
			case e.out <- f:
				return nil
			case <-e.gone.Done():
				return io.ErrClosedPipe
			}
		},
		Receive: func() (Frame, error) {
			select {
			case f, ok := <-e.in:
				if !ok {
					return f, io.EOF
				}
				return f, nil
			case <-e.gone.Done():
				return Frame{}, io.ErrClosedPipe
			}
		},
		Finish: func() { e.once.Do(func() { close(e.out) }) },
		Abort:  e.abort,
	}
}

func TestBothWaysAndHalfClose(t *testing.T) {
	a, b := pair(t)
	up, down := make([]byte, 3<<20), make([]byte, 2<<20)
	rand.Read(up)
	rand.Read(down)
	var wg sync.WaitGroup
	put := func(c *Conn, data []byte) {
		if _, err := c.Write(data); err != nil {
			t.Error(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
	}
	get := func(c *Conn, want []byte) {
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
	}
	wg.Go(func() { put(a, up) })
	wg.Go(func() { put(b, down) })
	wg.Go(func() { get(a, down) })
	wg.Go(func() { get(b, up) })
	wg.Wait()
	<-a.Done() // both sides have ended, so the link does
	<-b.Done()
	if _, err := a.Write([]byte("x")); err == nil {
		t.Error("written after CloseWrite")
	}
}

// TestReaderThatHasStopped: only its own window is under way, and Write waits with a deadline.
func TestReaderThatHasStopped(t *testing.T) {
	a, b := pair(t)
	if err := a.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := a.Write(make([]byte, 10*Window))
	if n != Window || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if err := a.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := a.Write(make([]byte, Window))
		wrote <- errors.Join(err, a.CloseWrite())
	}()
	got, err := io.Copy(io.Discard, b)
	if got != 2*Window || err != nil {
		t.Fatalf("%d bytes, %v", got, err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func TestReadDeadline(t *testing.T) {
	a, b := pair(t)
	if err := a.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := a.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatal(err)
	}
	if err := a.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	// A deadline also ends a Read that waits already.
	read := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 1))
		read <- err
	}()
	if err := a.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := a.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(a, make([]byte, 1)); err != nil {
		t.Fatal("the connection did not survive its deadline:", err)
	}
}

func TestCloseSendsWhatWasWritten(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(b)
	if string(got) != "last words" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	// Nobody reads any more: as with TCP, that is a reset.
	if _, err := b.Write([]byte("too late")); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	<-b.Done()
	if _, err := b.Write([]byte("x")); err == nil {
		t.Error("written to a connection that was reset")
	}
}

func TestCloseLingersForASilentEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t)
		begin := time.Now()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		<-a.Done()
		if took := time.Since(begin); took != linger {
			t.Errorf("it lingered %s", took)
		}
		<-b.Done()
		if _, err := b.Write([]byte("x")); err == nil {
			t.Error("written to a connection that was given up")
		}
	})
}

func TestAbortIsAReset(t *testing.T) {
	a, b := pair(t)
	read := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		read <- err
	}()
	a.Stop()
	if err := <-read; err == nil || errors.Is(err, io.EOF) {
		t.Fatalf("a reset was told as %v", err)
	}
}

// TestHostileEnd: the other side cannot make this one hold more than its window, nor
// say that it took what it was not sent.
func TestHostileEnd(t *testing.T) {
	for name, frames := range map[string][]Frame{
		"more than the window": {{Data: make([]byte, Window)}, {Data: []byte{1}}},
		"taken before sent":    {{Taken: 1}},
		"data after the end":   {{EOF: true}, {Data: []byte{1}}},
	} {
		t.Run(name, func(t *testing.T) {
			gone, abort := context.WithCancel(t.Context())
			c := New(Link{
				Send: func(Frame) error { return nil },
				Receive: func() (Frame, error) {
					if len(frames) == 0 {
						<-gone.Done()
						return Frame{}, io.ErrClosedPipe
					}
					f := frames[0]
					frames = frames[1:]
					return f, nil
				},
				Abort: abort,
			})
			<-c.Done()
			if _, err := c.Write([]byte("x")); !errors.Is(err, errProtocol) {
				t.Error(err)
			}
		})
	}
}

// TestLinkThatEndsEarly: an end of the call without the other side's word is no end of the data.
func TestLinkThatEndsEarly(t *testing.T) {
	c := New(Link{
		Send:    func(Frame) error { return nil },
		Receive: func() (Frame, error) { return Frame{}, io.EOF },
	})
	if _, err := io.ReadAll(c); !errors.Is(err, ErrReset) {
		t.Fatal(err)
	}
	<-c.Done()
}

package wire

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"
)

// writes notes each write; it fails when fail is set.
type writes struct {
	net.Conn
	made [][]byte
	fail error
}

func (w *writes) Write(p []byte) (int, error) {
	if w.fail != nil {
		return 0, w.fail
	}
	w.made = append(w.made, bytes.Clone(p))
	return len(p), nil
}

func (w *writes) Close() error { return nil }

// message returns HEADERS and DATA of one message.
func message(t testing.TB, endsWithHeaders bool) (headers, data []byte) {
	t.Helper()
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: endsWithHeaders}); err != nil {
		t.Fatal(err)
	}
	headers = bytes.Clone(b.Bytes())
	b.Reset()
	if err := f.WriteData(1, true, []byte("body")); err != nil {
		t.Fatal(err)
	}
	return headers, b.Bytes()
}

func put(t testing.TB, c net.Conn, p []byte) {
	t.Helper()
	if n, err := c.Write(p); n != len(p) || err != nil {
		t.Fatalf("wrote %d of %d bytes, %v", n, len(p), err)
	}
}

func TestHeadersWaitForTheirBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writes{}
		c := Joined(w, false)
		headers, data := message(t, false)
		put(t, c, headers)
		if len(w.made) != 0 {
			t.Fatal("the header did not wait")
		}
		put(t, c, data)
		if len(w.made) != 1 || !bytes.Equal(w.made[0], append(bytes.Clone(headers), data...)) {
			t.Fatalf("writes %q", w.made)
		}
		put(t, c, headers) // the body of this one takes its time
		time.Sleep(2 * holdFor)
		synctest.Wait()
		if len(w.made) != 2 || !bytes.Equal(w.made[1], headers) {
			t.Fatalf("writes %q", w.made[1:])
		}
		put(t, c, data)
		last, _ := message(t, true)
		put(t, c, last)
		if len(w.made) != 4 {
			t.Fatalf("a header that ends its stream waited: %q", w.made)
		}
		w.fail = errors.New("broken")
		put(t, c, headers) // held, so nothing fails yet
		time.Sleep(2 * holdFor)
		synctest.Wait()
		if _, err := c.Write(data); !errors.Is(err, w.fail) {
			t.Fatalf("a write after a failed one: %v", err)
		}
		c.Close()
	})
}

func TestCloseDropsWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writes{}
		c := Joined(w, false)
		headers, _ := message(t, false)
		put(t, c, headers)
		c.Close()
		time.Sleep(2 * holdFor)
		synctest.Wait()
		if len(w.made) != 0 {
			t.Fatalf("written after the close: %q", w.made)
		}
	})
}

// TestJoinedKeepsTheBytes cuts a stream of frames anywhere.
func TestJoinedKeepsTheBytes(t *testing.T) {
	headers, data := message(t, false)
	rapid.Check(t, func(rt *rapid.T) {
		w := &writes{}
		client := rapid.Bool().Draw(rt, "client")
		c := Joined(w, client)
		var all []byte
		if client {
			all = append(all, http2.ClientPreface...)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "messages") {
			all = append(append(all, headers...), data...)
		}
		for rest := all; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 40)).Draw(rt, "n")
			put(t, c, rest[:n])
			rest = rest[n:]
		}
		c.(*joined).release()
		if got := bytes.Join(w.made, nil); !bytes.Equal(got, all) {
			rt.Fatalf("got %q, want %q", got, all)
		}
		c.Close()
	})
}

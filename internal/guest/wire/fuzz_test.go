package wire

//lint:file-ignore SA1019 the counterpart of serve.go.

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// FuzzGuest feeds the guest's end with any bytes, in a session and outside, and
// then opens a session, which must work.
func FuzzGuest(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(http2.ClientPreface))
	f.Add(append(preambleMagic[:], 1, 2, 3)) // a host that died within its nonce
	f.Add(append(append(preambleMagic[:], make([]byte, nonceSize)...), http2.ClientPreface...))
	f.Add(append(append(preambleMagic[:], make([]byte, nonceSize)...), "GET / HTTP/1.1\r\n\r\n"...))
	f.Add(append(append(append(preambleMagic[:], make([]byte, nonceSize)...), http2.ClientPreface...), 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1))
	f.Fuzz(func(t *testing.T, stale []byte) {
		if len(stale) > 100_000 {
			t.Skip()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		guest, host := pair(t)
		served := make(chan error, 1)
		go func() {
			served <- Serve(ctx, guest, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "alive")
			}), slog.New(slog.DiscardHandler))
		}()
		if _, err := host.Write(stale); err != nil {
			t.Fatal(err)
		}
		conn, err := Dial(ctx, host)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http2.Transport{AllowHTTP: true}
		client, err := transport.NewClientConn(conn)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "alive" {
			t.Fatalf("%q, %v", body, err)
		}
		_ = response.Body.Close()
		cancel()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzHost feeds the host's end with any bytes before the reply.
func FuzzHost(f *testing.F) {
	f.Add([]byte(nil), []byte("rest"))
	f.Add(append(replyMagic[:], make([]byte, nonceSize)...), []byte{0})
	f.Add(replyMagic[:31], []byte("x"))
	f.Fuzz(func(t *testing.T, stale, rest []byte) {
		if len(stale)+len(rest) > 100_000 {
			t.Skip()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		guest, host := pair(t)
		failed := make(chan error, 1)
		go func() {
			preamble := make([]byte, len(preambleMagic)+nonceSize)
			_, err := io.ReadFull(guest, preamble)
			for _, part := range [][]byte{stale, replyMagic[:], preamble[len(preambleMagic):], rest} {
				if err == nil {
					_, err = guest.Write(part)
				}
			}
			failed <- err
		}()
		conn, err := Dial(ctx, host)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(rest))
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		if string(got) != string(rest) {
			t.Fatalf("got %q, want %q", got, rest)
		}
	})
}

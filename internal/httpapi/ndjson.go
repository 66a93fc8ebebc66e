package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// ndjson writes a stream of JSON lines. Its headers go out with the first line, so
// that what is wrong before it can still be an error with a status.
type ndjson struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	buf     bytes.Buffer
	begun   bool
}

func newNDJSON(w http.ResponseWriter) *ndjson {
	return &ndjson{w: w, flusher: http.NewResponseController(w)}
}

// nextLine is U+0085, which Go's encoder leaves as it is but Python's str.splitlines,
// and with it httpx's line reader, takes for the end of a line.
var nextLine = []byte("\u0085")

func (n *ndjson) begin() {
	if n.begun {
		return
	}
	n.begun = true
	h := n.w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies should pass lines on as they come
	n.w.WriteHeader(http.StatusOK)
}

// write adds a line. It reaches the client with the next flush.
func (n *ndjson) write(v any) error {
	n.begin()
	n.buf.Reset()
	enc := json.NewEncoder(&n.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	line := n.buf.Bytes()
	if bytes.Contains(line, nextLine) {
		line = bytes.ReplaceAll(line, nextLine, []byte(`\u0085`))
	}
	_, err := n.w.Write(line)
	return err
}

func (n *ndjson) flush() error { return n.flusher.Flush() }

// keepAlive sends an empty line.
func (n *ndjson) keepAlive() error {
	n.begin()
	if _, err := n.w.Write([]byte{'\n'}); err != nil {
		return err
	}
	return n.flush()
}

// patience is how long a stream waits for its first event before its headers go out without one.
const patience = time.Second

package interpreter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// lines writes a stream of JSON lines.
type lines struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	begun bool
}

func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, flush: http.NewResponseController(w)}
}

// write sends a line at once.
func (l *lines) write(v any) error {
	b, err := ascii(v)
	if err != nil {
		return err
	}
	if !l.begun {
		l.begun = true
		h := l.w.Header()
		h.Set("Content-Type", "application/x-ndjson")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // proxies should pass lines on as they come
		l.w.WriteHeader(http.StatusOK)
	}
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return err
	}
	return l.flush.Flush()
}

// ascii encodes JSON in ASCII alone. The JavaScript client decodes each piece of an answer by itself, so
// a longer character that lies in two of them would be lost, and the Python client takes some of them
// for the end of a line.
func ascii(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a line: %w", err)
	}
	first := bytes.IndexFunc(b, func(r rune) bool { return r >= utf8.RuneSelf })
	if first < 0 {
		return b, nil
	}
	out := append(make([]byte, 0, 2*len(b)), b[:first]...)
	for _, r := range string(b[first:]) {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
			continue
		}
		if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out, nil
}

// keys are the names of a result's forms by their MIME types.
var keys = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
	"image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	"application/vnd.ramet.chart+json": "chart", "application/vnd.ramet.data+json": "data",
}

// structured are the forms that are JSON themselves.
var structured = map[string]bool{"json": true, "chart": true, "data": true}

// result writes a result with all its forms.
func result(r *agentv1.Result) map[string]any {
	out := map[string]any{"type": "result", "is_main_result": r.Main}
	extra := map[string]any{}
	for mime, content := range r.Data {
		key, ok := keys[mime]
		switch {
		case !ok:
			extra[mime] = content
		case structured[key] && json.Valid([]byte(content)):
			out[key] = json.RawMessage(content)
		case structured[key]:
			extra[mime] = content
		case key == "text":
			out[key] = unquoted(content)
		default:
			out[key] = content
		}
	}
	if len(extra) > 0 {
		out["extra"] = extra
	}
	return out
}

// unquoted takes one pair of quotes off, as E2B shows strings.
func unquoted(s string) string {
	for _, q := range []string{"'", `"`} {
		if len(s) >= 2 && strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			return s[1 : len(s)-1]
		}
	}
	return s
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

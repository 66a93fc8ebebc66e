package network

import (
	"bytes"
	"errors"
	"strings"
)

const (
	// maxHeld bounds what is held back of a connection until it can be judged,
	// in bytes: a TLS ClientHello, or the head of an HTTP request.
	maxHeld = 32 << 10
	// maxFirstLine bounds a first line that may become an HTTP request.
	maxFirstLine = 8 << 10
)

var (
	errHeldTooLong  = errors.New("too long to be checked")
	errHeldTimeout  = errors.New("not complete in time")
	errHeldEOF      = errors.New("not complete at the end")
	errNotAnswered  = errors.New("upgrade without an answer")
	errUnusualHello = errors.New("unusual TLS hello")
)

// inspector looks at what the guest sends on one TCP connection whose verdict
// depends on names, and holds it back until it is judged. It changes nothing.
//
//   - TLS, on any port: the server name of the ClientHello is judged, also that
//     of a second one after a HelloRetryRequest. Without a server name the names
//     of the address suffice. With Encrypted Client Hello the outer name is
//     judged; the gateway's DNS gives out no keys for it. A hello that cannot be
//     read ends the connection.
//   - HTTP/1, on any port: host and target of each request are judged, so the
//     framing of the requests is followed, strictly. What two servers could read
//     differently ends the connection, and so do CONNECT and HTTP/2 without TLS.
//   - Anything else passes as it is.
//
// The other direction is not held back, so servers that speak first work.
// Bytes are fed by one goroutine; answered may be called by another.
type inspector struct {
	// judge decides about a name, not canonical; empty when none is shown.
	judge func(name string) error
	// wait blocks until the server's first bytes are there, and says whether
	// they switch protocols (HTTP 101).
	wait func() (bool, error)

	step     func(b []byte) (int, error) // consumes what is judged, 0 for more
	held     []byte
	pause    bool  // let pass what is judged before the next step
	requests int   // HTTP requests so far
	body     int64 // bytes left of a body, a chunk or a TLS record
	early    bool  // the TLS client may send early data
}

func newInspector(judge func(string) error, wait func() (bool, error)) *inspector {
	i := &inspector{judge: judge, wait: wait}
	i.step = i.sniff
	return i
}

// feed takes the next bytes and returns those that may pass on. They are valid
// until the next call. When paused returns true, it has to be called again,
// with nothing, after they have passed on.
func (i *inspector) feed(b []byte) ([]byte, error) {
	if len(i.held) > 0 {
		b = append(i.held, b...)
		i.held = nil
	}
	i.pause = false
	done := 0
	for done < len(b) && !i.pause {
		n, err := i.step(b[done:])
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		done += n
	}
	if rest := b[done:]; len(rest) > 0 {
		if len(rest) > maxHeld && !i.pause {
			return nil, errHeldTooLong
		}
		i.held = bytes.Clone(rest)
	}
	return b[:done], nil
}

// pending says whether bytes are held back.
func (i *inspector) pending() bool { return len(i.held) > 0 }

// paused says whether to call feed again.
func (i *inspector) paused() bool { return i.pause && i.pending() }

// raw passes everything: there is nothing more to judge.
func (i *inspector) raw(b []byte) (int, error) { return len(b), nil }

// sniff tells the protocols apart by the first bytes. It takes for HTTP what
// some server might, and leaves it to head to be strict.
func (i *inspector) sniff(b []byte) (int, error) {
	if b[0] == recordHandshake {
		i.step = i.hello
		return i.hello(b)
	}
	text := bytes.TrimLeft(b, "\r\n")
	line, _, ended := bytes.Cut(text, []byte("\n"))
	switch {
	case isGit(text):
	case !ended && mayBeRequest(text):
		if len(text) > maxFirstLine {
			return 0, errHeldTooLong
		}
		return 0, nil
	case ended && isRequest(string(line)):
		i.step = i.head
		return i.head(b)
	}
	if err := i.judge(""); err != nil {
		return 0, err
	}
	i.step = i.raw
	return len(b), nil
}

const spaces = " \t\v\f\r"

// mayBeRequest says whether an incomplete line could become a request line.
func mayBeRequest(line []byte) bool {
	const maxMethod = 64
	for n, c := range line {
		switch {
		case n > 0 && strings.IndexByte(spaces, c) >= 0:
			return true
		case !isTokenByte(c) || n >= maxMethod:
			return false
		}
	}
	return true
}

// isRequest says whether a server might take the line for a request line:
// "METHOD target HTTP/1.1", or without a version in the oldest HTTP.
func isRequest(line string) bool {
	if !mayBeRequest([]byte(line)) {
		return false
	}
	upper := strings.ToUpper(line)
	if at := strings.Index(upper, "HTTP/"); at > 0 && strings.IndexByte(spaces, upper[at-1]) >= 0 {
		return true
	}
	target, ok := strings.CutPrefix(upper, "GET")
	trimmed := strings.TrimLeft(target, spaces)
	return ok && trimmed != target && (strings.HasPrefix(trimmed, "/") || strings.HasPrefix(trimmed, "HTTP"))
}

// isGit says whether the bytes are a request to a git daemon, the one known
// protocol whose client sends what could be a method and a space, but no line
// end. No HTTP server takes such a method and then a zero byte.
func isGit(b []byte) bool {
	const length = 4
	line, _, ok := bytes.Cut(b, []byte{0})
	return ok && len(line) > length && bytes.HasPrefix(line[length:], []byte("git-")) && !bytes.ContainsAny(line, "\r\n")
}

// isTokenByte says whether c can be in an HTTP method or header name.
func isTokenByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

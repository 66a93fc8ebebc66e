package network

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

var (
	errRequest = errors.New("unusual HTTP request")
	errHTTP2   = errors.New("HTTP/2 without TLS")
	errConnect = errors.New("HTTP CONNECT")
	errChunk   = errors.New("unusual HTTP chunk")
)

const (
	lineEnd   = "\r\n"
	endOfHead = lineEnd + lineEnd
	// maxChunkLine bounds the line with the length of a chunk, in bytes.
	maxChunkLine = 256
)

// head judges one request and goes on to its body. Empty lines before it are
// passed over, as servers do.
func (i *inspector) head(b []byte) (int, error) {
	start := 0
	for bytes.HasPrefix(b[start:], []byte(lineEnd)) {
		start += len(lineEnd)
	}
	text := b[start:]
	end := bytes.Index(text, []byte(endOfHead))
	switch {
	case end > maxHeld:
		return 0, errHeldTooLong
	case end >= 0:
		text = text[:end]
	}
	if bareLineFeed(text) || !mayBeRequest(text) {
		return 0, errRequest
	}
	if end < 0 {
		if line, _, complete := bytes.Cut(text, []byte(lineEnd)); complete {
			_, err := parseRequest(string(line))
			return 0, err
		}
		return 0, nil
	}
	r, err := parseRequest(string(text))
	if err != nil {
		return 0, err
	}
	if len(r.names) == 0 {
		r.names = []string{""}
	}
	for _, name := range r.names {
		if err := i.judge(name); err != nil {
			return 0, err
		}
	}
	i.requests++
	switch {
	case r.chunked:
		i.step = i.chunkLine
	case r.length > 0:
		i.step, i.body = i.inBody, r.length
	case r.webSocket && i.requests == 1:
		i.step, i.pause = i.upgrade, true // the server has to see the request first
	default:
		i.step = i.head
	}
	return start + end + len(endOfHead), nil
}

// bareLineFeed says whether there is one without its carriage return. Some
// servers end a line there and others do not.
func bareLineFeed(b []byte) bool {
	return bytes.Count(b, []byte("\n")) != bytes.Count(b, []byte(lineEnd))
}

// upgrade is after a request for WebSocket, as the first of its connection:
// what comes is no HTTP when the server has agreed. Other upgrades, such as to
// HTTP/2, are not followed: what comes after them is judged as HTTP/1.
func (i *inspector) upgrade(b []byte) (int, error) {
	switched, err := i.wait()
	if err != nil {
		return 0, err
	}
	i.step = i.head
	if switched {
		i.step = i.raw
	}
	return i.step(b)
}

func (i *inspector) inBody(b []byte) (int, error) {
	n := min(int64(len(b)), i.body)
	if i.body -= n; i.body == 0 {
		i.step = i.head
	}
	return int(n), nil
}

// chunkLine reads the length of a chunk.
func (i *inspector) chunkLine(b []byte) (int, error) {
	line, n, err := cutLine(b, maxChunkLine)
	if n == 0 || err != nil {
		return 0, err
	}
	digits, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseUint(strings.TrimRight(digits, " \t"), 16, 60)
	if err != nil || strings.ContainsAny(digits, "+-_xX") {
		return 0, errChunk
	}
	i.step, i.body = i.inChunk, int64(size)
	if size == 0 {
		i.step = i.trailer
	}
	return n, nil
}

func (i *inspector) inChunk(b []byte) (int, error) {
	if n := min(int64(len(b)), i.body); n > 0 {
		i.body -= n
		return int(n), nil
	}
	line, n, err := cutLine(b, 0)
	if n == 0 || err != nil {
		return 0, err
	}
	if line != "" {
		return 0, errChunk
	}
	i.step = i.chunkLine
	return n, nil
}

// trailer passes the lines after the last chunk.
func (i *inspector) trailer(b []byte) (int, error) {
	line, n, err := cutLine(b, maxFirstLine)
	if n == 0 || err != nil {
		return 0, err
	}
	if line == "" {
		i.step = i.head
	} else if _, _, ok := parseHeader(line); !ok {
		return 0, errRequest
	}
	return n, nil
}

// cutLine returns the first line of b without its end, and its length with it;
// 0 when it is not complete.
func cutLine(b []byte, limit int) (string, int, error) {
	end := bytes.IndexByte(b, '\n')
	switch {
	case end > limit+1, end < 0 && len(b) > limit+1:
		return "", 0, errChunk
	case end < 0:
		return "", 0, nil
	case end == 0 || b[end-1] != '\r':
		return "", 0, errChunk
	}
	return string(b[:end-1]), end + 1, nil
}

// request is what is of interest in the head of one.
type request struct {
	names     []string // hosts of the Host header and the target
	length    int64
	chunked   bool
	webSocket bool
}

// parseRequest reads a head without its last line end.
func parseRequest(head string) (r request, err error) {
	lines := strings.Split(head, "\r\n")
	parts := strings.Split(lines[0], " ")
	if len(parts) != 3 || !isToken(parts[0]) {
		return r, errRequest
	}
	method, target, version := parts[0], parts[1], parts[2]
	switch {
	case version == "HTTP/2.0":
		return r, errHTTP2
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return r, errRequest
	case method == "CONNECT":
		return r, errConnect
	}
	if !strings.HasPrefix(target, "/") && target != "*" {
		name, ok := targetHost(target)
		if !ok {
			return r, errRequest
		}
		r.names = append(r.names, name)
	}
	headers := map[string]string{}
	for _, line := range lines[1:] {
		name, value, ok := parseHeader(line)
		if !ok {
			return r, errRequest
		}
		switch name {
		case "host", "content-length", "transfer-encoding":
			if _, twice := headers[name]; twice {
				return r, errRequest
			}
			headers[name] = value
		case "upgrade":
			headers[name] += "," + value
		}
	}
	return r, r.interpret(headers, version)
}

// interpret takes in the headers that matter, by their names in lower case.
func (r *request) interpret(headers map[string]string, version string) error {
	if value, ok := headers["host"]; ok {
		name, ok := hostName(value)
		if !ok {
			return errRequest
		}
		r.names = append(r.names, name)
	}
	length, hasLength := headers["content-length"]
	coding, hasCoding := headers["transfer-encoding"]
	switch {
	case hasCoding && (hasLength || version != "HTTP/1.1" || !strings.EqualFold(coding, "chunked")):
		return errRequest
	case hasCoding:
		r.chunked = true
	case hasLength:
		n, err := strconv.ParseUint(length, 10, 62)
		if err != nil || strings.Trim(length, "0123456789") != "" {
			return errRequest
		}
		r.length = int64(n)
	}
	r.webSocket = strings.EqualFold(headers["upgrade"], ",websocket")
	return nil
}

// targetHost returns the host of a target in absolute form.
func targetHost(target string) (string, bool) {
	lower := strings.ToLower(target)
	for _, scheme := range []string{"http://", "https://"} {
		if strings.HasPrefix(lower, scheme) {
			authority := lower[len(scheme):]
			if end := strings.IndexAny(authority, "/?#"); end >= 0 {
				authority = authority[:end]
			}
			return hostName(authority)
		}
	}
	return "", false
}

// hostName cuts the port off a host. An IPv6 address stays in its brackets:
// it is no name that a rule could match.
func hostName(host string) (string, bool) {
	name, port := host, ""
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		name, port = host[:at], host[at+1:]
	}
	if name == "" || strings.Trim(port, "0123456789") != "" || strings.ContainsAny(name, " \t@/\\?#%,;") {
		return "", false
	}
	return name, true
}

// parseHeader reads one line, and returns its name in lower case.
func parseHeader(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return "", "", false
	}
	for n := range len(value) {
		if c := value[n]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", false
		}
	}
	return strings.ToLower(name), strings.Trim(value, " \t"), true
}

func isToken(s string) bool {
	for n := range len(s) {
		if !isTokenByte(s[n]) {
			return false
		}
	}
	return s != ""
}

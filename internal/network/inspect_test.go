package network

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

var errEvil = errors.New("evil")

// inspected is what an inspector made of some bytes.
type inspected struct {
	names  []string
	passed []byte
	err    error
}

// inspectAll feeds data in pieces of the given size. Names with "evil" are
// refused; switched is what the server answers to an upgrade.
func inspectAll(data []byte, piece int, switched bool) (r inspected) {
	judge := func(name string) error {
		r.names = append(r.names, name)
		if strings.Contains(name, "evil") {
			return errEvil
		}
		return nil
	}
	in := newInspector(judge, func() (bool, error) { return switched, nil })
	for b := range slices.Chunk(data, piece) {
		for again := true; again; again = in.paused() {
			out, err := in.feed(b)
			r.passed = append(r.passed, out...)
			if err != nil {
				r.err = err
				return r
			}
			b = nil
		}
	}
	if in.pending() {
		r.err = errHeldEOF
	}
	return r
}

func TestInspectHTTP(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"
	const evil = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	const socket = "GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
	for _, tt := range []struct {
		data  string
		names string
		err   error
	}{
		{get, "good.test", nil},
		{"\r\n\r\n" + get, "good.test", nil},
		{get + get, "good.test good.test", nil},
		{"GET / HTTP/1.1\r\nhOST:\t good.test:8080 \r\nX: y\r\n\r\n", "good.test", nil},
		{"GET / HTTP/1.0\r\n\r\n", "", nil},
		{"GET http://a.test:80/x?y HTTP/1.1\r\nHost: good.test\r\n\r\n", "a.test good.test", nil},
		{"OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n", "good.test", nil},
		{"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "[::1]", nil},
		{fmt.Sprintf("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: %d\r\n\r\n%s", len(evil), evil), "good.test", nil}, // only a body
		{"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\n\n\n\r\nx" + get, "good.test good.test", nil},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n" + get, "good.test good.test", nil},

		// Spoofed, in every place.
		{evil, "evil.test", errEvil},
		{"\r\n" + evil, "evil.test", errEvil},
		{get + evil, "good.test evil.test", errEvil},
		{"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "evil.test", errEvil},
		{"GET http://good.test@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "-", errRequest},
		{"GET //evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "good.test", nil}, // a path, no host
		{"GET evil.test HTTP/1.1\r\nHost: good.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\r\nHost: good.test\r\n Host: evil.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\r\nX: y\nHost: evil.test\r\nHost: good.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\r\nX: y\rHost: evil.test\r\nHost: good.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\r\nHost : evil.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\r\nHost: good.test evil.test\r\n\r\n", "-", errRequest},
		{"GET / HTTP/1.1\nHost: evil.test\n\n", "-", errRequest},
		{"GET\t/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "-", errRequest},
		{"GET  / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "-", errRequest},
		{"get / http/1.1\r\nHost: evil.test\r\n\r\n", "-", errRequest},
		{"FOO / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "evil.test", errEvil},
		{"GET /\r\n", "-", errRequest}, // HTTP/0.9
		{"GET http://evil.test/\r\n\r\n", "-", errRequest},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", "-", errRequest},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n", "-", errRequest},
		{"POST / HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n", "-", errRequest},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "-", errRequest},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: +1\r\n\r\n", "-", errRequest},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", "good.test", errChunk},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", "good.test", errChunk},
		{"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + evil, "good.test evil.test", errEvil},
		{"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n", "-", errConnect},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "-", errHTTP2},
		{"GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n", "good.test", errHTTP2},
		{get + socket + evil, "good.test good.test evil.test", errEvil}, // only as the first
		{"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHeld) + "\r\n\r\n", "-", errHeldTooLong},
		{"GET / HTTP/1.1\r\nHost: good.test\r\n", "-", errHeldEOF},

		// Other protocols.
		{"SSH-2.0-OpenSSH_9.9\r\n\x00\x01GET / HTTP/1.1\r\n", "", nil},
		{"EHLO me.test\r\nMAIL FROM:<a@b>\r\n", "", nil},
		{"*1\r\n$4\r\nPING\r\n", "", nil},
		{"GET key\r\n", "", nil}, // redis
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "", nil},
		{"003agit-upload-pack /repo\x00host=good.test\x00", "", nil},
		{"003agit-upload-pack / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "evil.test", errEvil},
		{"PING", "-", errHeldEOF},
	} {
		for _, piece := range []int{1, 7, len(tt.data)} {
			r := inspectAll([]byte(tt.data), piece, false)
			names := strings.Join(r.names, " ")
			if len(r.names) == 0 {
				names = "-"
			}
			if names != tt.names || !errors.Is(r.err, tt.err) {
				t.Errorf("pieces of %d of %.80q: names %q, %v; want %q, %v", piece, tt.data, names, r.err, tt.names, tt.err)
			}
			if r.err == nil && string(r.passed) != tt.data {
				t.Errorf("%.80q was changed: %q", tt.data, r.passed)
			}
			if errors.Is(r.err, errEvil) && bytes.Contains(r.passed, []byte("evil.test")) {
				t.Errorf("%.80q: the evil request passed", tt.data)
			}
		}
	}
	// After a switch of protocols the bytes are no HTTP.
	if r := inspectAll([]byte(socket+"\x81\x85evil HTTP/1.1\r\n"), 1, true); r.err != nil || len(r.names) != 1 {
		t.Errorf("WebSocket: %v, names %v", r.err, r.names)
	}
	if r := inspectAll([]byte(socket+evil), 1, false); !errors.Is(r.err, errEvil) {
		t.Errorf("WebSocket that the server refused: %v", r.err)
	}
}

// helloOf returns the first flight of a real TLS client.
func helloOf(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	cfg.InsecureSkipVerify = true
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(theirs, cfg).Handshake()
	}()
	defer func() {
		ours.Close()
		theirs.Close()
		<-done
	}()
	header := make([]byte, recordHeader)
	if _, err := io.ReadFull(ours, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	return append(header, body...)
}

// fragment splits the first record of b into records of at most size bytes.
func fragment(b []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(b[recordHeader:], size) {
		out = append(out, b[:3]...)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestInspectTLS(t *testing.T) {
	data := []byte{recordData, 3, 3, 0, 4, 'e', 'v', 'i', 'l'}
	cipher := []byte{recordChangeCipher, 3, 3, 0, 1, 1}
	good := helloOf(t, &tls.Config{ServerName: "good.test", NextProtos: []string{"h2", "http/1.1"}})
	old := helloOf(t, &tls.Config{ServerName: "good.test", MaxVersion: tls.VersionTLS12})
	evil := helloOf(t, &tls.Config{ServerName: "evil.test"})
	none := helloOf(t, &tls.Config{})
	early := withExtension(good, extensionEarlyData, nil)
	for _, tt := range []struct {
		name  string
		data  []byte
		names string
		err   error
	}{
		{"1.3", slices.Concat(good, cipher, data), "good.test", nil},
		{"1.2", slices.Concat(old, data), "good.test", nil},
		{"no name", slices.Concat(none, cipher, data), "", nil},
		{"evil", evil, "evil.test", errEvil},
		{"records of 1 byte", slices.Concat(fragment(good, 1), data), "good.test", nil},
		{"records of 100 bytes", slices.Concat(fragment(evil, 100), data), "evil.test", errEvil},
		{"second hello", slices.Concat(good, cipher, good, data), "good.test good.test", nil},
		{"evil second hello", slices.Concat(good, cipher, evil), "good.test evil.test", errEvil},
		{"evil second hello, no cipher change", slices.Concat(good, fragment(evil, 9)), "good.test evil.test", errEvil},
		{"evil hello after early data", slices.Concat(early, cipher, data, data, evil), "good.test evil.test", errEvil},
		{"early data", slices.Concat(early, cipher, data, data), "good.test", nil},
		{"two names", withExtension(good, extensionServerName, serverNames("evil.test")), "-", errUnusualHello},
		{"list of two names", withExtension(none, extensionServerName, serverNames("good.test", "evil.test")), "-", errUnusualHello},
		{"empty list", withExtension(none, extensionServerName, serverNames()), "-", errUnusualHello},
		{"one name more", withExtension(none, extensionServerName, serverNames("evil.test")), "evil.test", errEvil},
		{"something behind the hello", slices.Concat([]byte{22, 3, 1}, binary.BigEndian.AppendUint16(nil, uint16(len(good)-recordHeader+1)), good[recordHeader:], []byte{1}), "-", errUnusualHello},
		{"alert in between", slices.Concat(fragment(good, 100)[:105], []byte{21, 3, 3, 0, 2, 1, 0}), "-", errUnusualHello},
		{"empty record", []byte{22, 3, 1, 0, 0}, "-", errUnusualHello},
		{"no hello", []byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, "-", errUnusualHello},
		{"huge", []byte{22, 3, 1, 0, 4, 1, 0xff, 0, 0}, "-", errHeldTooLong},
		{"cut", good[:len(good)-1], "-", errHeldEOF},
	} {
		for _, piece := range []int{1, 11, len(tt.data)} {
			r := inspectAll(tt.data, piece, false)
			names := strings.Join(r.names, " ")
			if len(r.names) == 0 {
				names = "-"
			}
			if names != tt.names || !errors.Is(r.err, tt.err) {
				t.Errorf("%s, pieces of %d: names %q, %v; want %q, %v", tt.name, piece, names, r.err, tt.names, tt.err)
			}
			if r.err == nil && !bytes.Equal(r.passed, tt.data) {
				t.Errorf("%s was changed", tt.name)
			}
			if errors.Is(r.err, errEvil) && bytes.Contains(r.passed, []byte("evil.test")) {
				t.Errorf("%s: the evil hello passed", tt.name)
			}
		}
	}
}

func serverNames(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
		list = append(list, n...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
}

// withExtension adds an extension at the end of a ClientHello in one record.
func withExtension(hello []byte, kind uint16, data []byte) []byte {
	b := bytes.Clone(hello)
	at := recordHeader + messageHeader + 2 + 32
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	extra := binary.BigEndian.AppendUint16(nil, kind)
	extra = binary.BigEndian.AppendUint16(extra, uint16(len(data)))
	extra = append(extra, data...)
	grow := func(p []byte) { binary.BigEndian.PutUint16(p, binary.BigEndian.Uint16(p)+uint16(len(extra))) }
	grow(b[at:])
	grow(b[3:])
	grow(b[recordHeader+2:])
	return append(b, extra...)
}

func FuzzInspector(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"), 3)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), 5)
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\nabc"), 8)
	hello := helloOf(f, &tls.Config{ServerName: "good.test"})
	f.Add(slices.Concat(hello, []byte{20, 3, 3, 0, 1, 1}, hello), 9)
	f.Add(fragment(hello, 50), 20)
	f.Add(withExtension(hello, extensionEarlyData, nil), 100)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		if piece < 1 || len(data) == 0 || len(data) > 4096 {
			return
		}
		// However the bytes are cut, the same passes and the same is refused.
		a, b := inspectAll(data, piece, false), inspectAll(data, len(data), false)
		if fmt.Sprint(a.names) != fmt.Sprint(b.names) || (a.err == nil) != (b.err == nil) {
			t.Errorf("pieces of %d: %q, %v; whole: %q, %v", piece, a.names, a.err, b.names, b.err)
		}
		if !bytes.HasPrefix(data, a.passed) || a.err == nil && !bytes.Equal(a.passed, data) {
			t.Errorf("%q was changed to %q, %v", data, a.passed, a.err)
		}
	})
}

func FuzzClientHello(f *testing.F) {
	hello := helloOf(f, &tls.Config{ServerName: "good.test"})
	f.Add(hello)
	f.Add(helloOf(f, &tls.Config{MaxVersion: tls.VersionTLS12}))
	f.Add(fragment(hello, 10))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, n, err := parseHello(data)
		if n > len(data) || err != nil && n != 0 || n == 0 && h != (clientHello{}) {
			t.Errorf("%+v, %d of %d bytes, %v", h, n, len(data), err)
		}
		if n == 0 {
			return
		}
		// The same hello in other records is the same hello.
		if again, m, err := parseHello(data[:n]); again != h || m != n || err != nil {
			t.Errorf("again %+v, %d, %v", again, m, err)
		}
	})
}

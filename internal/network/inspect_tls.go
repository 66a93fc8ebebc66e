package network

import "encoding/binary"

// TLS record types and the rest of what is read of a ClientHello (RFC 8446).
const (
	recordChangeCipher = 20
	recordHandshake    = 22
	recordData         = 23

	recordHeader = 5
	maxRecord    = 16 << 10 // of plaintext, in bytes

	messageClientHello = 1
	messageHeader      = 4

	extensionServerName = 0
	extensionEarlyData  = 42
)

// hello judges a ClientHello, and then watches for a second one.
func (i *inspector) hello(b []byte) (int, error) {
	h, n, err := parseHello(b)
	if n == 0 || err != nil {
		return 0, err
	}
	if err := i.judge(h.serverName); err != nil {
		return 0, err
	}
	i.early = i.early || h.earlyData
	i.step = i.afterHello
	return n, nil
}

// afterHello looks for a second ClientHello, which some servers would let
// change the server name. It can come after a ChangeCipherSpec and, when the
// first one announced it, after early data; other records mean that the
// handshake went on.
func (i *inspector) afterHello(b []byte) (int, error) {
	if len(b) < recordHeader {
		return 0, nil
	}
	switch b[0] {
	case recordHandshake:
		if len(b) == recordHeader {
			return 0, nil
		}
		if b[recordHeader] == messageClientHello {
			i.step = i.hello
			return i.hello(b)
		}
	case recordData:
		if i.early {
			return i.skipRecord(b)
		}
	case recordChangeCipher:
		return i.skipRecord(b)
	}
	i.step = i.raw
	return len(b), nil
}

func (i *inspector) skipRecord(b []byte) (int, error) {
	i.body = int64(recordHeader) + int64(binary.BigEndian.Uint16(b[3:]))
	i.step = i.inRecord
	return i.inRecord(b)
}

func (i *inspector) inRecord(b []byte) (int, error) {
	n := min(int64(len(b)), i.body)
	if i.body -= n; i.body == 0 {
		i.step = i.afterHello
	}
	return int(n), nil
}

// clientHello is what is of interest in one.
type clientHello struct {
	serverName string // empty if there is none
	earlyData  bool
}

// parseHello reads one ClientHello from the beginning of b, over as many
// records as it has, and returns the length of these records. The length is 0
// when more bytes are needed. It is strict: what two implementations could read
// differently is an error.
func parseHello(b []byte) (clientHello, int, error) {
	var message []byte
	n, want := 0, messageHeader
	for len(message) < want {
		rest := b[n:]
		if len(rest) > 0 && rest[0] != recordHandshake {
			return clientHello{}, 0, errUnusualHello
		}
		if len(rest) < recordHeader {
			return clientHello{}, 0, nil
		}
		size := int(binary.BigEndian.Uint16(rest[3:]))
		if size == 0 || size > maxRecord {
			return clientHello{}, 0, errUnusualHello
		}
		rest = rest[recordHeader:]
		partial := size > len(rest)
		message = append(message, rest[:min(size, len(rest))]...)
		if len(message) > 0 && message[0] != messageClientHello {
			return clientHello{}, 0, errUnusualHello
		}
		if len(message) >= messageHeader {
			want = messageHeader + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
			if want > maxHeld {
				return clientHello{}, 0, errHeldTooLong
			}
		}
		if partial {
			return clientHello{}, 0, nil
		}
		n += recordHeader + size
	}
	if len(message) != want {
		return clientHello{}, 0, errUnusualHello // something else in the same record
	}
	h, ok := parseClientHello(message[messageHeader:])
	if !ok {
		return clientHello{}, 0, errUnusualHello
	}
	return h, n, nil
}

// reader takes vectors off the front of a message.
type reader struct {
	b  []byte
	ok bool
}

// vector returns the next vector, whose length is in lenBytes bytes.
func (r *reader) vector(lenBytes int) reader {
	size := 0
	for _, c := range r.take(lenBytes) {
		size = size<<8 | int(c)
	}
	return reader{b: r.take(size), ok: r.ok}
}

func (r *reader) take(n int) []byte {
	if !r.ok || n > len(r.b) {
		r.ok, r.b = false, nil
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) uint16() int {
	if b := r.take(2); len(b) == 2 {
		return int(binary.BigEndian.Uint16(b))
	}
	return -1
}

// parseClientHello reads the body of the message.
func parseClientHello(b []byte) (h clientHello, ok bool) {
	r := reader{b: b, ok: true}
	r.take(2 + 32) // version, random
	r.vector(1)    // session id
	r.vector(2)    // cipher suites
	r.vector(1)    // compression methods
	if !r.ok || len(r.b) == 0 {
		return h, r.ok // before extensions there were no names
	}
	extensions := r.vector(2)
	if !r.ok || len(r.b) > 0 {
		return h, false
	}
	seen := map[int]bool{}
	for len(extensions.b) > 0 {
		kind := extensions.uint16()
		data := extensions.vector(2)
		if !extensions.ok || seen[kind] {
			return h, false
		}
		seen[kind] = true
		switch kind {
		case extensionEarlyData:
			h.earlyData = true
		case extensionServerName:
			if h.serverName, ok = parseServerName(data); !ok {
				return h, false
			}
		}
	}
	return h, true
}

// parseServerName reads the extension's list, which has one host name.
func parseServerName(r reader) (string, bool) {
	list := r.vector(2)
	kind := list.take(1)
	name := list.vector(2)
	if !r.ok || !list.ok || len(r.b)+len(list.b) > 0 || kind[0] != 0 || len(name.b) == 0 {
		return "", false
	}
	return string(name.b), true
}

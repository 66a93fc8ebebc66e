package network

import "encoding/binary"

// quicHeader is as much as isQUIC reads of a datagram, in bytes.
const quicHeader = 5

// isQUIC says whether a datagram begins with a long header of a QUIC version
// that servers know (RFC 8999): every connection begins with one. The server
// name is in it, but encrypted.
func isQUIC(b []byte) bool {
	if len(b) < quicHeader || b[0]&0x80 == 0 {
		return false
	}
	switch v := binary.BigEndian.Uint32(b[1:]); {
	case v == 1, v == 0x6b3343cf: // RFC 9000, RFC 9369
		return true
	case v>>8 == 0xff0000: // drafts
		return true
	case v>>24 == 'Q', v>>24 == 'T': // Google's own
		return true
	}
	return false
}

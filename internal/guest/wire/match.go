package wire

import "bytes"

// matcher finds a pattern in a stream that arrives in pieces. It is the
// Horspool algorithm: almost every step skips the length of the pattern, which
// matters in a guest that is emulated.
type matcher struct {
	pattern []byte
	skip    [256]uint8
	tail    []byte // the last bytes seen, fewer than the pattern has
	joint   []byte // scratch for what lies across two pieces
}

// newMatcher takes a pattern of 2 to 255 bytes.
func newMatcher(pattern []byte) *matcher {
	m := &matcher{
		pattern: pattern,
		tail:    make([]byte, 0, len(pattern)-1),
		joint:   make([]byte, 0, 2*len(pattern)),
	}
	for i := range m.skip {
		m.skip[i] = uint8(len(pattern))
	}
	for i, c := range pattern[:len(pattern)-1] {
		m.skip[c] = uint8(len(pattern) - 1 - i)
	}
	return m
}

// next takes the next piece of the stream. It returns where in piece the first
// occurrence of the pattern ends, or -1. After an occurrence the matcher starts
// afresh, and what follows in piece has not been looked at.
func (m *matcher) next(piece []byte) int {
	overlap := len(m.pattern) - 1
	if len(m.tail) > 0 {
		m.joint = append(m.joint[:0], m.tail...)
		m.joint = append(m.joint, piece[:min(overlap, len(piece))]...)
		if i := m.index(m.joint); i >= 0 {
			end := i + len(m.pattern) - len(m.tail)
			m.tail = m.tail[:0]
			return end
		}
	}
	if i := m.index(piece); i >= 0 {
		m.tail = m.tail[:0]
		return i + len(m.pattern)
	}
	if len(piece) >= overlap {
		m.tail = append(m.tail[:0], piece[len(piece)-overlap:]...)
		return -1
	}
	if drop := len(m.tail) + len(piece) - overlap; drop > 0 {
		m.tail = m.tail[:copy(m.tail, m.tail[drop:])]
	}
	m.tail = append(m.tail, piece...)
	return -1
}

// last takes the next piece and returns where its last occurrence ends, or -1.
func (m *matcher) last(piece []byte) int {
	end := -1
	for base := 0; ; base = end {
		n := m.next(piece[base:])
		if n < 0 {
			return end
		}
		end = base + n
	}
}

func (m *matcher) index(s []byte) int {
	n := len(m.pattern)
	for i := n - 1; i < len(s); {
		c := s[i]
		if c == m.pattern[n-1] && bytes.Equal(s[i-n+1:i+1], m.pattern) {
			return i - n + 1
		}
		i += int(m.skip[c])
	}
	return -1
}

package exec

import "unicode/utf8"

// splitter cuts a byte stream at character boundaries: it holds back the
// incomplete character at the end of a chunk until its rest arrives. Bytes
// that are not UTF-8 pass as they are. It never holds more than three bytes.
type splitter struct {
	held [utf8.UTFMax - 1]byte
	n    int
}

// push returns what can be passed on of the bytes held so far and chunk. The
// result is a copy.
func (s *splitter) push(chunk []byte) []byte {
	out := make([]byte, 0, s.n+len(chunk))
	out = append(out, s.held[:s.n]...)
	out = append(out, chunk...)
	tail := incompleteTail(out)
	s.n = copy(s.held[:], out[len(out)-tail:])
	return out[:len(out)-tail]
}

// flush returns what is still held.
func (s *splitter) flush() []byte {
	out := append([]byte(nil), s.held[:s.n]...)
	s.n = 0
	return out
}

// incompleteTail returns how many bytes at the end of b are the beginning of a
// character whose rest is missing.
func incompleteTail(b []byte) int {
	for i := 1; i <= len(b) && i < utf8.UTFMax; i++ {
		c := b[len(b)-i]
		if !utf8.RuneStart(c) {
			continue
		}
		if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
			return i
		}
		return 0
	}
	return 0
}

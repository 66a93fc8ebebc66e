package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// naive returns the ends of all occurrences that do not overlap.
func naive(stream, pattern []byte) (ends []int) {
	for at := 0; ; {
		i := bytes.Index(stream[at:], pattern)
		if i < 0 {
			return ends
		}
		at += i + len(pattern)
		ends = append(ends, at)
	}
}

func TestMatcherFindsAcrossAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Two letters, so that partial and repeated matches are common.
		letter := rapid.SampledFrom([]byte("ab"))
		pattern := rapid.SliceOfN(letter, 2, 8).Draw(t, "pattern")
		stream := rapid.SliceOfN(letter, 0, 200).Draw(t, "stream")
		m := newMatcher(pattern)
		var got []int
		for base := 0; base < len(stream); {
			piece := stream[base : base+rapid.IntRange(1, len(stream)-base).Draw(t, "piece")]
			for at := 0; ; {
				n := m.next(piece[at:])
				if n < 0 {
					break
				}
				at += n
				got = append(got, base+at)
			}
			base += len(piece)
		}
		want := naive(stream, pattern)
		if len(got) != len(want) {
			t.Fatalf("found at %v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("found at %v, want %v", got, want)
			}
		}
	})
}

func TestMatcherLast(t *testing.T) {
	m := newMatcher([]byte("magic"))
	if end := m.last([]byte("xmagicymagicz")); end != 12 {
		t.Fatalf("last occurrence ends at %d, want 12", end)
	}
	if end := m.last([]byte("mag")); end != -1 {
		t.Fatalf("end %d in a part of the pattern", end)
	}
	if end := m.last([]byte("icmag")); end != 2 {
		t.Fatalf("end %d across two pieces, want 2", end)
	}
	if end := m.last([]byte("ic")); end != 2 {
		t.Fatalf("end %d of the second, want 2", end)
	}
}

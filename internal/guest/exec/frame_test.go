package exec

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"
)

func frameOf(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestFramesAreCutWhereverTheyBreak(t *testing.T) {
	bodies := []string{
		`{"op":"ready","python":"3.11.2","ipython":true}`,
		`{"op":"done","id":7,"code":1,"error":{"name":"E","value":"v","traceback":"t"},"result":{"data":{"a":"b"},"main":true}}`,
		`{"op":"result","data":{"text/plain":"1"},"main":false,"dropped":5}`,
	}
	var all []byte
	for _, b := range bodies {
		all = append(all, frameOf(b)...)
	}
	for step := 1; step < 40; step++ {
		var f frameReader
		var got []*message
		for rest := all; len(rest) > 0; {
			n := min(step, len(rest))
			f.push(rest[:n])
			rest = rest[n:]
			for {
				m, err := f.next()
				if err != nil {
					t.Fatal(err)
				}
				if m == nil {
					break
				}
				got = append(got, m)
			}
		}
		if len(got) != 3 || got[1].ID != 7 || got[1].Error.Name != "E" || got[1].Result.Data["a"] != "b" ||
			got[2].Data["text/plain"] != "1" || got[2].Dropped != 5 {
			t.Fatalf("step %d: %+v", step, got)
		}
	}
}

func TestFrameThatIsTooLargeIsRefusedByItsHead(t *testing.T) {
	var f frameReader
	f.push([]byte{0xff, 0xff, 0xff, 0xff})
	if _, err := f.next(); err == nil {
		t.Error("4 GiB were accepted")
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add(frameOf(`{"op":"done","id":1}`), uint8(3))
	f.Add(frameOf(`{"op":"result","data":{"a":"\ud800"}}`), uint8(1))
	f.Add([]byte{0, 0, 0, 0}, uint8(9))
	f.Add([]byte{0xff, 0, 0, 0, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var r frameReader
		for len(data) > 0 {
			n := min(int(step)+1, len(data))
			r.push(data[:n])
			data = data[n:]
			for {
				m, err := r.next()
				if err != nil {
					return
				}
				if m == nil {
					break
				}
				for _, e := range resultEvents(&m.result) {
					for k := range e.GetResult().GetData() {
						if !utf8.ValidString(k) {
							t.Errorf("key %q is not UTF-8", k)
						}
					}
				}
			}
		}
	})
}

func TestSplitterHoldsBackOnlyIncompleteCharacters(t *testing.T) {
	tests := []struct {
		in   string
		tail int
	}{
		{"", 0},
		{"abc", 0},
		{"a\xe2", 1},
		{"a\xe2\x82", 2},
		{"a\xe2\x82\xac", 0},
		{"\xf0\x9f\x98", 3},
		{"\xff", 0},
		{"\x80\x80\x80", 0},
		{"\xc3", 1},
		{"\xf0\x9f\x98\x80", 0},
		{"\xe2(", 0},
	}
	for _, tt := range tests {
		if got := incompleteTail([]byte(tt.in)); got != tt.tail {
			t.Errorf("%q: %d, want %d", tt.in, got, tt.tail)
		}
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a€ü😀"), uint8(1))
	f.Add([]byte("\xff\xe2\x82\xf0\x9f"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var s splitter
		var out []byte
		for rest := data; len(rest) > 0; {
			n := min(int(step)+1, len(rest))
			got := s.push(rest[:n])
			rest = rest[n:]
			if utf8.Valid(data) && !utf8.Valid(got) {
				t.Errorf("chunk %q of valid text is not valid", got)
			}
			out = append(out, got...)
		}
		if out = append(out, s.flush()...); !bytes.Equal(out, data) {
			t.Errorf("%q became %q", data, out)
		}
	})
}

func TestFindProgram(t *testing.T) {
	if file, err := findProgram("sh", "/no/such:/bin", "/"); err != nil || file != "/bin/sh" {
		t.Errorf("%q %v", file, err)
	}
	if file, err := findProgram("./sh", "", "/bin"); err != nil || file != "/bin/sh" {
		t.Errorf("%q %v", file, err)
	}
	if _, err := findProgram("passwd", "/etc", "/"); err == nil || !strings.Contains(err.Error(), "permission") {
		t.Errorf("a file that is not executable: %v", err)
	}
}

package exec

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// maxFrame is the most bytes of JSON that the interpreter may send in one
// frame. The largest is a result of 8 MiB, all of it escaped.
const maxFrame = 64 << 20

// errFrameTooLarge means that the interpreter does not speak our protocol.
var errFrameTooLarge = errors.New("frame is too large")

// message is a frame from the interpreter.
type message struct {
	Op string `json:"op"`

	// ready and done: address and length of what random generators draw from, of those
	// that were not told before
	Numbers [][2]int64 `json:"numbers"`

	// ready
	Version string `json:"version"`
	IPython bool   `json:"ipython"`

	// done
	ID          uint64      `json:"id"`
	Code        int32       `json:"code"`
	StartFailed string      `json:"start_failed"`
	Error       *errorFrame `json:"error"`
	Interrupted bool        `json:"interrupted"` // the code ended because of SIGINT
	Result      *result     `json:"result"`

	result // of op "result"
}

type errorFrame struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

type result struct {
	Data    map[string]string `json:"data"`
	Main    bool              `json:"main"`
	Dropped uint64            `json:"dropped"`
}

// request is a frame to the interpreter.
type request struct {
	Op    string            `json:"op"`
	ID    uint64            `json:"id,omitempty"`
	Code  string            `json:"code,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Cwd   string            `json:"cwd,omitempty"`
	Begin string            `json:"begin,omitempty"` // where an interpreter that nobody has moved goes first
	Set   map[string]string `json:"set,omitempty"`
	Unset []string          `json:"unset,omitempty"`
	Strip bool              `json:"strip,omitempty"` // the code is TypeScript
}

// encodeFrame returns a request with its length in front.
func encodeFrame(r *request) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode %s frame: %w", r.Op, err)
	}
	out := make([]byte, 4, 4+len(body))
	binary.BigEndian.PutUint32(out, uint32(len(body)))
	return append(out, body...), nil
}

// frameReader collects bytes from the interpreter and cuts them into frames.
type frameReader struct{ buf []byte }

func (f *frameReader) push(b []byte) { f.buf = append(f.buf, b...) }

// next returns the next complete frame, or nil when more bytes are needed.
// After an error the stream cannot be used any more.
func (f *frameReader) next() (*message, error) {
	if len(f.buf) < 4 {
		return nil, nil
	}
	n := int(binary.BigEndian.Uint32(f.buf))
	if n > maxFrame {
		return nil, errFrameTooLarge
	}
	if len(f.buf) < 4+n {
		return nil, nil
	}
	var m message
	if err := json.Unmarshal(f.buf[4:4+n], &m); err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	rest := copy(f.buf, f.buf[4+n:])
	f.buf = f.buf[:rest]
	if cap(f.buf) > 1<<20 && rest == 0 {
		f.buf = nil // do not keep the memory of one large result
	}
	return &m, nil
}

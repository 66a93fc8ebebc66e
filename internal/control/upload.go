package control

import (
	"errors"
	"fmt"
	"io"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/sandbox"
)

func guestError(err error) error { return guest.Error(err) }

// sendAll passes r to write piece by piece, at most chunk bytes each, as they
// arrive. It returns nil only at the true end of r: a body that breaks off is an
// error, so that the caller does not commit what came.
// An io.EOF of write means that the other side has ended the call.
func sendAll(r io.Reader, chunk int, write func([]byte) error) error {
	buf := make([]byte, chunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return brokenOff(err)
		}
	}
}

func brokenOff(err error) error {
	return &sandbox.Error{
		Kind: sandbox.Invalid, Code: "body_broken_off", Message: "the request's body ended early; send it again as a whole",
		Err: fmt.Errorf("read the body: %w", err),
	}
}

// sendFile sends r as the content of a file. A small file is one message: its
// header, its bytes and the commit together. The commit goes out only at the
// true end of r; a body that breaks off is an error.
func sendFile(header *agentv1.WriteHeader, r io.Reader, send func(*agentv1.WriteRequest) error) error {
	buf := make([]byte, fileChunk)
	for {
		n, err := filled{r}.Read(buf)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return brokenOff(err)
		}
		if err := send(&agentv1.WriteRequest{Header: header, Data: buf[:n], Commit: end}); err != nil || end {
			return err
		}
		header = nil
	}
}

// filled makes reads of r as large as the caller's buffer where r has the bytes:
// fewer, larger messages carry a file faster.
type filled struct{ r io.Reader }

func (f filled) Read(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = f.r.Read(p[n:])
		n += m
	}
	return n, err
}

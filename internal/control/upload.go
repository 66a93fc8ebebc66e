package control

import (
	"errors"
	"fmt"
	"io"

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
			return &sandbox.Error{
				Kind: sandbox.Invalid, Code: "body_broken_off", Message: "the request's body ended early; send it again as a whole",
				Err: fmt.Errorf("read the body: %w", err),
			}
		}
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

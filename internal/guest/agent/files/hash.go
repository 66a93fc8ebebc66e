package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// maxHashed bounds the paths of one call.
const maxHashed = 4096

// Hash sends the SHA-256 of each file of the request, in its order. What is not a regular
// file, or has just gone, has an empty one.
func (Service) Hash(ctx context.Context, r *agentv1.HashRequest, out *connect.ServerStream[agentv1.HashResponse]) error {
	if len(r.Paths) > maxHashed {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("too many paths in one call"))
	}
	id, err := lookupIdentity(r.User)
	if err != nil {
		return err
	}
	buf := make([]byte, chunkSize)
	for i, p := range r.Paths {
		path, err := id.absolute(p)
		if err != nil {
			return err
		}
		sum, err := hashFile(ctx, id, path, buf)
		if err != nil {
			return err
		}
		if err := out.Send(&agentv1.HashResponse{Index: uint32(i), Sha256: sum}); err != nil {
			return err
		}
	}
	return nil
}

// hashFile returns nothing for what cannot be read as a regular file; its error is only the
// context's.
func hashFile(ctx context.Context, id *identity, path string, buf []byte) ([]byte, error) {
	var f *os.File
	err := id.do(func() (err error) {
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil, ctx.Err()
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, ctx.Err()
	}
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := f.Read(buf)
		h.Write(buf[:n]) // never fails
		switch {
		case errors.Is(err, io.EOF):
			return h.Sum(nil), nil
		case err != nil:
			return nil, ctx.Err()
		}
	}
}

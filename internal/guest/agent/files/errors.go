package files

import (
	"errors"
	"fmt"
	"io/fs"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// errnoKey is guest.ErrnoKey, which a package of the agent does not import.
const errnoKey = "Ramet-Errno"

// codes maps the system errors that a caller can act on.
var codes = map[unix.Errno]connect.Code{
	unix.ENOENT:       connect.CodeNotFound,
	unix.EEXIST:       connect.CodeAlreadyExists,
	unix.EACCES:       connect.CodePermissionDenied,
	unix.EPERM:        connect.CodePermissionDenied,
	unix.EROFS:        connect.CodeFailedPrecondition,
	unix.EISDIR:       connect.CodeFailedPrecondition,
	unix.ENOTDIR:      connect.CodeFailedPrecondition,
	unix.ENOTEMPTY:    connect.CodeFailedPrecondition,
	unix.EBUSY:        connect.CodeFailedPrecondition,
	unix.ETXTBSY:      connect.CodeFailedPrecondition,
	unix.EXDEV:        connect.CodeFailedPrecondition,
	unix.EINVAL:       connect.CodeInvalidArgument,
	unix.ENAMETOOLONG: connect.CodeInvalidArgument,
	unix.ELOOP:        connect.CodeInvalidArgument,
	unix.ENOSPC:       connect.CodeResourceExhausted,
	unix.EDQUOT:       connect.CodeResourceExhausted,
	unix.EFBIG:        connect.CodeResourceExhausted,
}

// fail turns the error of work on path into what travels to the host: a code,
// the system error's name as metadata, and one sentence. Errors that carry a
// code already stay as they are.
func fail(path string, err error) error {
	if err == nil {
		return nil
	}
	var done *connect.Error
	if errors.As(err, &done) {
		return err
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			errno = unix.ENOENT
		case errors.Is(err, fs.ErrExist):
			errno = unix.EEXIST
		case errors.Is(err, fs.ErrPermission):
			errno = unix.EACCES
		default:
			return connect.NewError(connect.CodeUnknown, fmt.Errorf("%s: %w", path, err))
		}
	}
	code, ok := codes[errno]
	if !ok {
		code = connect.CodeUnknown
	}
	out := connect.NewError(code, fmt.Errorf("%s: %w", path, errno))
	if name := unix.ErrnoName(errno); name != "" {
		out.Meta().Set(errnoKey, name)
	}
	return out
}

package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"connectrpc.com/connect"

	"ramet.dev/ramet/internal/sandbox"
)

// ErrnoKey is the metadata key of an error under which the agent tells the
// system error's name, such as ENOENT.
const ErrnoKey = "Ramet-Errno"

// maxErrorText bounds what a guest's error may put into a message, in bytes.
const maxErrorText = 512

// unreachableError says that a call failed because the connection has ended.
type unreachableError struct{ cause error }

func (e *unreachableError) Error() string { return "agent connection ended: " + e.cause.Error() }
func (e *unreachableError) Unwrap() error { return e.cause }

// meaning is what one kind of error means to a user.
type meaning struct {
	kind sandbox.Kind
	code string
}

// byErrno is for the errors of system calls.
var byErrno = map[string]meaning{
	"ENOENT":       {sandbox.NotFound, "file_not_found"},
	"EACCES":       {sandbox.Invalid, "permission_denied"},
	"EPERM":        {sandbox.Invalid, "permission_denied"},
	"EROFS":        {sandbox.Conflict, "read_only_filesystem"},
	"EEXIST":       {sandbox.Conflict, "file_exists"},
	"EISDIR":       {sandbox.Conflict, "is_a_directory"},
	"ENOTDIR":      {sandbox.Conflict, "not_a_directory"},
	"ENOTEMPTY":    {sandbox.Conflict, "directory_not_empty"},
	"EBUSY":        {sandbox.Conflict, "file_busy"},
	"ETXTBSY":      {sandbox.Conflict, "file_busy"},
	"EXDEV":        {sandbox.Conflict, "other_filesystem"},
	"ENOSPC":       {sandbox.Exhausted, "no_space"},
	"EDQUOT":       {sandbox.Exhausted, "no_space"},
	"EFBIG":        {sandbox.Exhausted, "file_too_large"},
	"EINVAL":       {sandbox.Invalid, "invalid_argument"},
	"ENAMETOOLONG": {sandbox.Invalid, "name_too_long"},
	"ELOOP":        {sandbox.Invalid, "too_many_links"},
	"ECONNREFUSED": {sandbox.Conflict, "port_closed"},
}

// byCode is for what carries no system error.
var byCode = map[connect.Code]meaning{
	connect.CodeCanceled:           {sandbox.Unavailable, "canceled"},
	connect.CodeInvalidArgument:    {sandbox.Invalid, "invalid_argument"},
	connect.CodeDeadlineExceeded:   {sandbox.Unavailable, "guest_timeout"},
	connect.CodeNotFound:           {sandbox.NotFound, "not_found"},
	connect.CodeAlreadyExists:      {sandbox.Conflict, "already_exists"},
	connect.CodePermissionDenied:   {sandbox.Invalid, "permission_denied"},
	connect.CodeResourceExhausted:  {sandbox.Exhausted, "guest_exhausted"},
	connect.CodeFailedPrecondition: {sandbox.Conflict, "failed_precondition"},
	connect.CodeAborted:            {sandbox.Conflict, "aborted"},
	connect.CodeOutOfRange:         {sandbox.Invalid, "out_of_range"},
	connect.CodeUnimplemented:      {sandbox.Unsupported, "unsupported_by_agent"},
}

// Error turns an error of a call to the guest into a *sandbox.Error, whose
// cause it remains. What is not the guest's, such as a *sandbox.Error of the
// caller, it returns as it is; so it does nil.
//
// The guest's words are shown only where they help (a path, a program's name),
// shortened and without control characters. Everything else about a guest's
// error is looked up in tables here, never parsed from its text.
func Error(err error) error {
	if err == nil {
		return nil
	}
	var done *sandbox.Error
	if errors.As(err, &done) {
		return err
	}
	var unreachable *unreachableError
	if errors.As(err, &unreachable) {
		return &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "guest_unreachable",
			Message: "the sandbox does not answer", Err: err,
		}
	}
	if errors.Is(err, context.Canceled) {
		return &sandbox.Error{Kind: sandbox.Unavailable, Code: "canceled", Message: "the call was canceled", Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &sandbox.Error{Kind: sandbox.Unavailable, Code: "guest_timeout", Message: "the sandbox did not answer in time", Err: err}
	}
	var remote *connect.Error
	if !errors.As(err, &remote) {
		return err
	}
	if m, ok := byErrno[remote.Meta().Get(ErrnoKey)]; ok {
		return &sandbox.Error{Kind: m.kind, Code: m.code, Message: clean(remote.Message()), Err: err}
	}
	if remote.Code() == connect.CodeUnavailable && !connect.IsWireError(err) {
		return &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "guest_unreachable",
			Message: "the sandbox does not answer", Err: err,
		}
	}
	if m, ok := byCode[remote.Code()]; ok {
		return &sandbox.Error{Kind: m.kind, Code: m.code, Message: clean(remote.Message()), Err: err}
	}
	return &sandbox.Error{
		Kind: sandbox.Internal, Code: "guest_error",
		Message: "the agent in the sandbox failed", Err: fmt.Errorf("agent: %w", err),
	}
}

// clean makes a guest's text fit to be shown.
func clean(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if s = strings.TrimSpace(s); s == "" {
		return "the agent in the sandbox refused the call"
	}
	return s
}

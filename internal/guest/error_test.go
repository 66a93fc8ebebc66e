package guest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/sandbox"
)

func withErrno(code connect.Code, text, errno string) error {
	err := connect.NewError(code, errors.New(text))
	err.Meta().Set(guest.ErrnoKey, errno)
	return fmt.Errorf("wrapped: %w", err)
}

func TestError(t *testing.T) {
	own := sandbox.Errorf(sandbox.Conflict, "mine", "mine")
	for _, c := range []struct {
		name    string
		err     error
		kind    sandbox.Kind
		code    string
		message string
	}{
		{"no file", withErrno(connect.CodeNotFound, "/a: no such file", "ENOENT"), sandbox.NotFound, "file_not_found", "/a: no such file"},
		{"permission", withErrno(connect.CodePermissionDenied, "/a: denied", "EACCES"), sandbox.Invalid, "permission_denied", "/a: denied"},
		{"directory", withErrno(connect.CodeFailedPrecondition, "/a", "EISDIR"), sandbox.Conflict, "is_a_directory", "/a"},
		{"not a directory", withErrno(connect.CodeFailedPrecondition, "/a", "ENOTDIR"), sandbox.Conflict, "not_a_directory", "/a"},
		{"exists", withErrno(connect.CodeAlreadyExists, "/a", "EEXIST"), sandbox.Conflict, "file_exists", "/a"},
		{"not empty", withErrno(connect.CodeFailedPrecondition, "/a", "ENOTEMPTY"), sandbox.Conflict, "directory_not_empty", "/a"},
		{"port closed", withErrno(connect.CodeFailedPrecondition, "nothing listens", "ECONNREFUSED"), sandbox.Conflict, "port_closed", "nothing listens"},
		{"disk full", withErrno(connect.CodeResourceExhausted, "/a", "ENOSPC"), sandbox.Exhausted, "no_space", "/a"},
		{"unknown errno", withErrno(connect.CodeNotFound, "x", "EWHATEVER"), sandbox.NotFound, "not_found", "x"},
		{"no errno", connect.NewError(connect.CodeNotFound, errors.New("no run")), sandbox.NotFound, "not_found", "no run"},
		{"invalid", connect.NewError(connect.CodeInvalidArgument, errors.New("bad")), sandbox.Invalid, "invalid_argument", "bad"},
		{"unimplemented", connect.NewError(connect.CodeUnimplemented, errors.New("x")), sandbox.Unsupported, "unsupported_by_agent", "x"},
		{"local unavailable", connect.NewError(connect.CodeUnavailable, io.ErrUnexpectedEOF), sandbox.Unavailable, "guest_unreachable", "the sandbox does not answer"},
		{"deadline", connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), sandbox.Unavailable, "guest_timeout", "the sandbox did not answer in time"},
		{"canceled", connect.NewError(connect.CodeCanceled, context.Canceled), sandbox.Unavailable, "canceled", "the call was canceled"},
		{"internal", connect.NewError(connect.CodeInternal, errors.New("secret /x/y")), sandbox.Internal, "guest_error", "the agent in the sandbox failed"},
		{"control characters", connect.NewError(connect.CodeNotFound, errors.New("a\x1b[31m\nb\xff")), sandbox.NotFound, "not_found", "a [31m b?"},
		{"empty text", connect.NewError(connect.CodeNotFound, errors.New("\n")), sandbox.NotFound, "not_found", "the agent in the sandbox refused the call"},
		{"own error", fmt.Errorf("x: %w", own), sandbox.Conflict, "mine", "mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e *sandbox.Error
			if !errors.As(guest.Error(c.err), &e) {
				t.Fatalf("%v is no sandbox error", guest.Error(c.err))
			}
			if e.Kind != c.kind || e.Code != c.code || e.Message != c.message {
				t.Fatalf("got %v %s %q", e.Kind, e.Code, e.Message)
			}
			if !errors.Is(guest.Error(c.err), c.err) && c.name != "own error" {
				t.Fatal("the cause is lost")
			}
		})
	}
	if guest.Error(nil) != nil {
		t.Fatal("nil became an error")
	}
	if err := guest.Error(io.EOF); !errors.Is(err, io.EOF) || sandbox.KindOf(err) != sandbox.Internal {
		t.Fatalf("a foreign error became %v", err)
	}
	long := connect.NewError(connect.CodeNotFound, errors.New(strings.Repeat("é", 10_000)))
	if m := guest.Error(long).Error(); len(m) > 600 {
		t.Fatalf("a message of %d bytes", len(m))
	}
}

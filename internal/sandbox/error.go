package sandbox

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error by what the caller can do about it. Every surface
// maps kinds to its own status codes exactly once.
type Kind int

// The kinds of errors. Anything that is not an *Error counts as Internal.
const (
	Internal    Kind = iota // our fault; details go to the log, not to the user
	Invalid                 // the request itself is wrong; repeating it will not help
	NotFound                // no such object, or not one of the caller's project
	Conflict                // the object exists but is in the wrong state for the call
	Exhausted               // a quota of the caller is used up
	Unavailable             // the host cannot do it now; it may later
	Unsupported             // this host, driver or template cannot do it at all
)

var kindNames = [...]string{"internal", "invalid", "not_found", "conflict", "exhausted", "unavailable", "unsupported"}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "internal"
	}
	return kindNames[k]
}

// Error is an error that may be shown to a user.
type Error struct {
	Kind Kind
	// Code is a stable word in snake case, for programs: "sandbox_not_found".
	Code string
	// Message is one clear sentence that says what to do, without a final stop.
	Message string
	// RetryAfter, when positive, says when the same call may succeed.
	RetryAfter time.Duration
	// Err is the cause, for errors.Is and the log.
	Err error
}

func (e *Error) Error() string {
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an *Error. A %w in the format becomes its cause and is part of
// the message, so wrap only what a user may read.
func Errorf(kind Kind, code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// KindOf returns the kind of the first *Error in err's chain, or Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

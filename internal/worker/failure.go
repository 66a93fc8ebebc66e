package worker

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

const (
	// diskFullRetry is when a create that found the disk full may be tried again.
	diskFullRetry = 30 * time.Second

	// What a user is shown of the console of a machine that did not start.
	shownLines = 10
	shownBytes = 1 << 10
	// loggedBytes is what a log line has of a console.
	loggedBytes = 2 << 10
)

// bootError makes the error of a boot that failed at a step into one that its
// user may read, with the last lines of the console.
func bootError(step string, err error, console string) error {
	if full := diskFull(err); full != nil {
		return full
	}
	e := &sandbox.Error{Kind: sandbox.Unavailable, Code: "boot_failed", Message: "the sandbox's machine did not start: " + reasonOf(step, err), Err: err}
	var known *sandbox.Error
	if errors.As(err, &known) && says(step, known) {
		e.Kind, e.Code, e.Message, e.RetryAfter = known.Kind, known.Code, known.Message, known.RetryAfter
	}
	if tail := consoleTail(console, shownLines, shownBytes); tail != "" {
		e.Message += "; the console's last lines:\n" + tail
	}
	return e
}

// says reports whether an error that was made further down tells a user more than that
// the boot failed. The guest's own errors do not: nobody has asked it for anything.
func says(step string, e *sandbox.Error) bool {
	switch step {
	case stepAgent, stepIdentity, stepWarmUp, stepFreeze:
		return e.Kind != sandbox.Unavailable && e.Kind != sandbox.Internal
	}
	return e.Kind != sandbox.Internal
}

// reasonOf is half a sentence.
func reasonOf(step string, err error) string {
	switch {
	case errors.Is(err, vmm.ErrGone):
		return "it ended during the step " + step
	case errors.Is(err, context.DeadlineExceeded):
		return "the step " + step + " did not end in time"
	}
	return "the step " + step + " failed"
}

// diskFull returns what a user is told when the host's disk is full, or nil when err is
// something else.
func diskFull(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return nil
	}
	var e *sandbox.Error
	if errors.As(err, &e) && e.Kind != sandbox.Internal {
		return err // it says so already
	}
	return &sandbox.Error{
		Kind: sandbox.Unavailable, Code: "server_disk_full", RetryAfter: diskFullRetry,
		Message: "the host's disk is full; delete sandboxes or templates, or try again later", Err: err,
	}
}

// consoleTail returns the last lines of a console, at most so many and so many bytes of
// them. The text is a hostile guest's: only what can be printed is kept.
func consoleTail(console string, lines, bytes int) string {
	// Characters that are dropped must not make the work larger than this.
	console = lastBytes(console, 8*bytes)
	var kept []string
	for line := range strings.Lines(console) {
		line = strings.Map(func(r rune) rune {
			switch {
			case r == '\t':
				return ' '
			case r == utf8.RuneError:
				return '?'
			case !unicode.IsPrint(r):
				return -1
			}
			return r
		}, line)
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	kept = kept[max(0, len(kept)-lines):]
	return lastBytes(strings.Join(kept, "\n"), bytes)
}

// logTail is the console's tail for a log line.
func logTail(console string) string { return consoleTail(console, 40, loggedBytes) }

// lastBytes returns the last n bytes of s, from the start of a character on.
func lastBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for i := range min(len(s), utf8.UTFMax) {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s
}

package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"

	"ramet.dev/ramet/internal/client"
)

// Exit codes. exitCodesHelp tells users the same.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitTimeout     = 124 // run, exec: as timeout(1)
	exitRamet       = 125 // run, exec: our failure, not that of the code
	exitSignalBase  = 128
)

// usageError is a mistake in how the program was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// exitStatus ends the program with a code and says nothing more: what there was
// to say has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// runError marks an error of 'run' and 'exec' that is not the code's own.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// signalError says that a signal ended the command.
type signalError struct{ sig syscall.Signal }

func (e *signalError) Error() string { return "ended by " + e.sig.String() }

// finish prints err, if it says anything, and returns the exit code.
func (p *program) finish(err error) int {
	var status exitStatus
	var sig *signalError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &sig):
		return exitSignalBase + int(sig.sig)
	case brokenPipe(err):
		// Whoever read our output has left, as head(1) does. That is no news.
		return exitSignalBase + int(syscall.SIGPIPE)
	}
	var usage *usageError
	if errors.As(err, &usage) || !p.running {
		fmt.Fprintf(p.Err, "ramet: %s\n", clean(firstLine(err.Error())))
		fmt.Fprintf(p.Err, "Run '%s --help' for help.\n", p.helpPath())
		return exitUsage
	}
	fmt.Fprintf(p.Err, "ramet: %s\n", clean(p.sentence(err)))
	var run *runError
	var gone *client.UnreachableError
	switch {
	case errors.As(err, &run):
		return exitRamet
	case errors.As(err, &gone):
		return exitUnreachable
	}
	return exitFailed
}

// brokenPipe reports whether the reader of our own output has gone. A network
// connection that broke is another matter.
func brokenPipe(err error) bool {
	var file *os.PathError
	return errors.As(err, &file) && errors.Is(file.Err, syscall.EPIPE)
}

// sentence says what went wrong and, where we know, what to do about it.
func (p *program) sentence(err error) string {
	var gone *client.UnreachableError
	if errors.As(err, &gone) {
		if localURL(gone.URL) {
			return fmt.Sprintf("no server answers at %s: start one with 'ramet up'", gone.URL)
		}
		return fmt.Sprintf("%v: is RAMET_URL right?", gone)
	}
	var api *client.Error
	if errors.As(err, &api) {
		switch {
		case api.Status == http.StatusUnauthorized && p.keyHint != "":
			return err.Error() + ": " + p.keyHint
		case api.Status >= 500 && api.RequestID != "":
			return fmt.Sprintf("%v (request %s)", err, api.RequestID)
		}
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return err.Error() + ": if it is a private authority's, set RAMET_CA to the file of that authority's certificate"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return err.Error() + ": it took too long"
	}
	return err.Error()
}

// helpPath names the command whose help belongs to a usage error.
func (p *program) helpPath() string {
	if p.command != nil {
		return p.command.CommandPath()
	}
	// The arguments could not be read: find the command that they name.
	path := "ramet"
	if cmd, _, err := p.newRoot().Find(p.Args); err == nil {
		path = cmd.CommandPath()
	}
	return path
}

func firstLine(s string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	// cobra puts its suggestions ("Did you mean this?") below.
	if names := strings.Fields(rest); len(names) > 0 && strings.Contains(rest, "Did you mean") {
		line += " (did you mean " + names[len(names)-1] + "?)"
	}
	return line
}

// readKey reads an API key from a file.
func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.Read(b)
	if err != nil {
		return "", fmt.Errorf("read the API key in %s: %w", path, err)
	}
	key := strings.TrimSpace(string(b[:n]))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("%s does not hold an API key", path)
	}
	return key, nil
}

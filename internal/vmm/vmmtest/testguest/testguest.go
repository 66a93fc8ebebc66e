// Package testguest is the guest of the drivers' conformance suite: a line
// protocol over the agent's stream and what the suite asks of a guest. The real
// one is testguest/init, which runs as the first program of a virtual machine;
// drivers without machines serve it from memory.
//
// A request is "ID COMMAND ARG…", its answer "ID RESULT" or "ID error: …".
// Both sides skip what they cannot parse, so bytes that an earlier connection
// left behind do no harm.
package testguest

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// maxLine bounds a request, in bytes.
const maxLine = 4096

// Guest does what the suite asks for.
type Guest interface {
	// Do runs one command.
	Do(command string, args []string) (string, error)
}

// Serve answers requests until the stream ends.
func Serve(rw io.ReadWriter, g Guest) error {
	s := bufio.NewScanner(rw)
	s.Buffer(make([]byte, maxLine), maxLine)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 2 {
			continue
		}
		result, err := g.Do(f[1], f[2:])
		if err != nil {
			result = "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Fprintf(rw, "%s %s\n", f[0], result); err != nil {
			return err
		}
	}
	return s.Err()
}

package clitest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// A shell on a terminal of a fake sandbox says how large that is and takes lines
// that end with a return:
//
//	exit N    end with a code
//	cut       break the connection off; "fall" end as SIGHUP does
//	env NAME  write a variable; "cwd", "user" and "argv" likewise
//
// Anything else, Ctrl-C included, is shown as it was typed. Each size that the
// terminal gets is told.

// ResizeProcess implements the API.
func (s *Server) ResizeProcess(w http.ResponseWriter, r *http.Request, id v1.SandboxID, process v1.ProcessID) {
	size, ok := read[v1.PtySize](w, r)
	if !ok {
		return
	}
	run := s.run(w, id, process)
	switch {
	case run == nil:
	case run.sizes == nil:
		fail(w, 409, "failed_precondition", "the run has no terminal")
	default:
		run.sizes <- size
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) shell(r *http.Request, run *run, e *emitter, req v1.ProcessStart, c call) {
	typed := make(chan string)
	go func() {
		defer close(typed)
		buf := make([]byte, 4096)
		for {
			n, err := run.stdin.Read(buf)
			if err != nil {
				return
			}
			select {
			case typed <- string(buf[:n]):
			case <-r.Context().Done():
				return
			}
		}
	}()
	show := func(size v1.PtySize) { e.text("stdout", fmt.Sprintf("size %dx%d\r\n", size.Columns, size.Rows)) }
	show(*req.Pty)
	line := ""
	for {
		select {
		case size := <-run.sizes:
			show(size)
			continue
		case <-r.Context().Done():
			return
		case text, ok := <-typed:
			if !ok {
				e.exit(0, "", "") // the end of input was typed
				return
			}
			line += text
		}
		for {
			whole, rest, found := strings.Cut(strings.ReplaceAll(line, "\n", "\r"), "\r")
			if !found {
				break
			}
			line = rest
			if e.typed(whole, req, c) {
				return
			}
		}
	}
}

// typed does one line. It reports whether the shell has ended.
func (e *emitter) typed(line string, req v1.ProcessStart, c call) bool {
	word, arg, _ := strings.Cut(line, " ")
	switch word {
	case "exit":
		n, err := strconv.Atoi(arg)
		if err != nil {
			panic(err)
		}
		e.exit(n, "", "")
		return true
	case "cut":
		panic(http.ErrAbortHandler)
	case "fall":
		e.exit(129, "signaled", "the program was ended by SIGHUP")
		return true
	case "env":
		e.text("stdout", fmt.Sprintf("%s is %q\r\n", arg, c.env[arg]))
	case "cwd":
		e.text("stdout", c.cwd+"\r\n")
	case "user":
		e.text("stdout", c.user+"\r\n")
	case "argv":
		e.text("stdout", fmt.Sprintf("argv %q\r\n", req.Argv))
	default:
		e.text("stdout", fmt.Sprintf("typed %q\r\n", line))
	}
	return false
}

package controltest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/creack/pty"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// terminal is the terminal of a run: one of the host's.
type terminal struct {
	master *os.File
	theirs *os.File
	done   chan struct{} // closed when all output is in the journal
	once   sync.Once
}

// openTerminal makes a terminal for a command that is about to start.
func openTerminal(cmd *exec.Cmd, size *agentv1.PtySize) (*terminal, error) {
	master, theirs, err := pty.Open()
	if err != nil {
		return nil, err
	}
	t := &terminal{master: master, theirs: theirs, done: make(chan struct{})}
	if err := t.resize(size); err != nil {
		t.close()
		theirs.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return t, nil
}

func (t *terminal) resize(size *agentv1.PtySize) error {
	return pty.Setsize(t.master, &pty.Winsize{Cols: uint16(size.Columns), Rows: uint16(size.Rows)})
}

// follow copies what programs write, until none of them has the terminal any more.
func (t *terminal) follow(o out) {
	defer close(t.done)
	buf := make([]byte, 4096)
	for {
		n, err := t.master.Read(buf)
		if n > 0 {
			o.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// drain waits for the output of a program that has ended, and hangs up.
func (t *terminal) drain() {
	select {
	case <-t.done:
	case <-time.After(time.Second):
	}
	t.close()
	<-t.done
}

func (t *terminal) close() { t.once.Do(func() { t.master.Close() }) }

// typist is the standard input of a run on a terminal. Its end is typed.
type typist struct{ t *terminal }

func (w typist) Write(p []byte) (int, error) { return w.t.master.Write(p) }

func (w typist) Close() error {
	_, err := w.t.master.Write([]byte{4})
	return err
}

// Resize sets the size of a run's terminal.
func (s execService) Resize(_ context.Context, req *agentv1.ResizeRequest) (*agentv1.ResizeResponse, error) {
	r, err := s.find(req.RunId)
	if err != nil {
		return nil, err
	}
	switch {
	case r.term == nil:
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the run has no terminal"))
	case r.ended():
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the run has ended"))
	}
	if err := r.term.resize(req.Pty); err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the run has ended"))
	}
	return &agentv1.ResizeResponse{}, nil
}

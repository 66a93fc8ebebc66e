package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// defaultTerm is the TERM of programs on a terminal, unless their environment has one.
const defaultTerm = "xterm-256color"

// terminal is our end of a program's pseudo-terminal. Its output is read by
// outputs; this is for typing, its size, and its foreground processes.
type terminal struct {
	master *os.File // does not block

	mu     sync.Mutex
	inLine bool // what was typed last is a line without its end
}

// openTerminal makes a terminal of a size for a user. out is a descriptor of
// its own for reading what programs write, which does not block; slave is the
// programs' end. While slave is open, reading never finds the end.
func openTerminal(size *agentv1.PtySize, uid uint32) (t *terminal, out int, slave *os.File, err error) {
	fail := func(step string, err error) (*terminal, int, *os.File, error) {
		return nil, -1, nil, fmt.Errorf("open terminal: %s: %w", step, err)
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fail("open /dev/ptmx", err)
	}
	t = &terminal{master: os.NewFile(uintptr(fd), "terminal")}
	defer func() {
		if err != nil {
			t.master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock", err)
	}
	// Not by its name in /dev/pts: what is mounted there is the user's affair.
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fail("open the other end", errno)
	}
	slave = os.NewFile(peer, "terminal")
	defer func() {
		if err != nil {
			slave.Close()
		}
	}()
	if err := unix.Fchown(int(peer), int(uid), -1); err != nil { // so that its user can open it by name
		return fail("give it to its user", err)
	}
	attr, err := unix.IoctlGetTermios(int(peer), unix.TCGETS)
	if err == nil {
		attr.Iflag |= unix.IUTF8 // erasing takes a whole character
		err = unix.IoctlSetTermios(int(peer), unix.TCSETS, attr)
	}
	if err != nil {
		return fail("set it up", err)
	}
	if err := t.resize(size); err != nil {
		return fail("set its size", err)
	}
	out, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fail("duplicate", err)
	}
	return t, out, slave, nil
}

// checkSize refuses what is not the size of a terminal.
func checkSize(size *agentv1.PtySize) error {
	for _, n := range []uint32{size.GetColumns(), size.GetRows()} {
		if n < 1 || n > 65535 {
			return invalid("a terminal of %d columns and %d rows cannot be; each is 1 to 65535", size.GetColumns(), size.GetRows())
		}
	}
	return nil
}

// control calls f with the descriptor, which stays open meanwhile.
func (t *terminal) control(f func(fd int) error) error {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return fmt.Errorf("%w: %w", os.ErrClosed, err) // the only reason that there is
	}
	return failed
}

// resize sets the size. The kernel sends SIGWINCH to the foreground processes
// when it is another one.
func (t *terminal) resize(size *agentv1.PtySize) error {
	return t.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(size.GetColumns()), Row: uint16(size.GetRows())})
	})
}

// typed notes what was written, for endOfFile.
func (t *terminal) typed(data []byte) {
	if len(data) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inLine = !bytes.ContainsAny(data[len(data)-1:], "\r\n")
}

// endOfFile returns what a person types to say that there is no more: the
// terminal's end-of-file character, twice when a line has begun, since the
// first one only sends that line off. A program in raw mode gets one, and does with it
// what it likes.
func (t *terminal) endOfFile() ([]byte, error) {
	var eof byte
	lines := false
	err := t.control(func(fd int) error {
		attr, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			eof, lines = attr.Cc[unix.VEOF], attr.Lflag&unix.ICANON != 0
		}
		return err
	})
	if err != nil || eof == 0 { // switched off
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if lines && t.inLine {
		return []byte{eof, eof}, nil
	}
	return []byte{eof}, nil
}

// signalForeground sends a signal to the processes in the foreground, unless they
// are the group of leader, the program that the terminal was made for. That must not have
// been collected: so long this is its session's terminal, and the kernel knows which those are.
func (t *terminal) signalForeground(sig unix.Signal, leader int) error {
	return t.control(func(fd int) error {
		var group int32
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
		if errno != 0 || group <= 1 || int(group) == leader {
			return nil // nobody else has it
		}
		if err := unix.Kill(-int(group), sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	})
}

// signalTerminal signals a program on a terminal: its process group. A shell
// puts each of its jobs in a group of its own, so what ends the program for good
// goes to those in the foreground as well.
func (e *execution) signalTerminal(t *terminal, sig unix.Signal) error {
	if sig != unix.SIGKILL && sig != unix.SIGHUP {
		return e.proc.SignalGroup(sig)
	}
	// All of it before the first can be seen to have ended by it.
	return e.proc.WhileItLasts(func() error {
		if err := t.signalForeground(sig, e.proc.Pid); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("signal the foreground: %w", err)
		}
		sigs := []unix.Signal{sig}
		if sig == unix.SIGHUP {
			sigs = append(sigs, unix.SIGCONT) // as at every hang-up: what is stopped must notice
		}
		for _, sig := range sigs {
			if err := unix.Kill(-e.proc.Pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("signal the program: %w", err)
			}
		}
		return nil
	})
}

// Resize implements agentv1connect.ExecHandler.
func (s *Service) Resize(_ context.Context, req *agentv1.ResizeRequest) (*agentv1.ResizeResponse, error) {
	if err := checkSize(req.GetPty()); err != nil {
		return nil, err
	}
	r, err := s.find(req.GetRunId())
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	term, pty, ended := r.term, r.pty, !r.ended.IsZero()
	r.mu.Unlock()
	switch {
	case !pty:
		return nil, precondition("run %s has no terminal", r.id)
	case ended || term == nil:
		return nil, precondition("run %s has ended", r.id)
	}
	if err := term.resize(req.GetPty()); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return nil, precondition("run %s has ended", r.id)
		}
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("resize the terminal of run %s: %w", r.id, err))
	}
	return &agentv1.ResizeResponse{}, nil
}

// onTerminal writes lines as a terminal shows them.
func onTerminal(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

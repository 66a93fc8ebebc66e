package cli

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// knownTerms are the terminals that sandboxes know. Any other is shown as the most
// common one, which nearly all of them behave like.
var knownTerms = map[string]bool{
	"linux": true, "rxvt": true, "rxvt-unicode": true, "rxvt-unicode-256color": true, "screen": true, "screen-256color": true,
	"tmux": true, "tmux-256color": true, "vt100": true, "vt220": true, "xterm": true, "xterm-256color": true, "dumb": true,
}

// tidy undoes what programs commonly do to a terminal: the other screen, a hidden cursor,
// reports of the mouse and of pasting, colours.
const tidy = "\x1b[?1047l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[0m\r\n"

// makeRaw switches a terminal to raw mode. What it returns switches back, once, and can be called by anybody.
func makeRaw(f *os.File) (restore func(), err error) {
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		// It fails only when the terminal is gone, and then there is nothing to give back.
		_ = term.Restore(int(f.Fd()), before)
	}), nil
}

// keys reads what is typed and looks for the keys that end a session: ~ and . at the
// beginning of a line. They must come without anything else, so that text that is pasted goes
// through as it is.
type keys struct {
	in    io.Reader
	fresh bool // a line begins here
	tilde bool // a ~ was typed there and is held back
}

// Read returns errLeft behind the keys that end the session.
func (k *keys) Read(p []byte) (int, error) {
	for {
		n, err := k.in.Read(p[1:])
		got := p[1 : 1+n]
		held := k.tilde
		k.tilde = false
		switch {
		case n == 1 && held && got[0] == '.', k.fresh && string(got) == "~.":
			return 0, errLeft
		case n == 1 && held && got[0] == '~':
			held = false // typed twice, it is one of the program's
		case n == 1 && k.fresh && got[0] == '~' && err == nil:
			k.tilde, k.fresh = true, false
			continue
		}
		if n > 0 {
			k.fresh = got[n-1] == '\r' || got[n-1] == '\n'
		}
		if held {
			p[0] = '~'
			return n + 1, err
		}
		return copy(p, got), err
	}
}

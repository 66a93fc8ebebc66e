package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

type shellOptions struct {
	cwd    string
	user   string
	tty    bool
	noWake bool
	env    envFlags
}

func (p *program) shellCommand() *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell ID [flags] [-- CMD [ARG]...]",
		Short: "Open a terminal in a sandbox",
		Long: `Open a terminal in a sandbox, with the user's shell or the given program. What you
type goes there, Ctrl-C included; the size follows that of your window. The
exit code of the shell is this command's.

What still runs in the terminal when you leave gets SIGHUP, as when a window is
closed; 'nohup' and 'ramet exec --detach' are for what shall stay. When nothing
answers any more, Enter, ~ and . (one after the other) leave.

When standard input is not a terminal it is passed on as it is, and there is no
terminal in the sandbox either; --tty makes one there all the same, and types the
input into it.

Exit codes other than the program's: 2 wrong usage, 125 Ramet failed or the
connection was lost, 126 or 127 the program could not be started, 128+N signal N.`,
		Example: `  ramet shell 3f2a
  ramet shell 3f2a --user user --cwd /srv
  ramet shell 3f2a -- htop
  ramet shell 3f2a < setup.sh
  printf 'stty size; exit\n' | ramet shell 3f2a --tty`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("missing argument: ID")
			}
			if dash := cmd.ArgsLenAtDash(); len(args) > 1 && dash != 1 {
				return fmt.Errorf("unexpected argument %q: put -- before the program", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w := watchSignals(awake(cmd.Context(), o.noWake))
			defer w.stop()
			return w.explain(p.shell(w, o, args[0], args[1:]))
		},
		ValidArgsFunction: p.completeOneID,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (put -- before the program, so that its flags are its own)", err)
	})
	f := cmd.Flags()
	f.StringVar(&o.cwd, "cwd", "", "working directory (default: the user's home)")
	f.StringVarP(&o.user, "user", "u", "", "user of the sandbox to run as (default root)")
	f.BoolVarP(&o.tty, "tty", "t", false, "make a terminal in the sandbox even when standard input is none")
	nameValue(f, "cwd", "DIR")
	nameValue(f, "user", "NAME")
	o.env.add(cmd, "of the shell")
	addNoWake(cmd, &o.noWake)
	cmd.RegisterFlagCompletionFunc("user", cobra.FixedCompletions([]string{"root", "user", "sandbox"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("cwd", cobra.NoFileCompletions)
	return cmd
}

// loginShell runs the shell of whoever it is started as.
var loginShell = []string{"/bin/sh", "-c", `exec "${SHELL:-/bin/sh}"`}

func (p *program) shell(w *signals, o shellOptions, name string, argv []string) error {
	if len(argv) == 0 {
		argv = loginShell
	}
	here := isTerminal(p.In)
	if !here && !o.tty {
		return p.execProgram(w, execOptions{cwd: o.cwd, user: o.user, noWake: o.noWake, env: o.env}, name, argv)
	}
	env, err := o.env.values()
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return ours(err)
	}
	id, err := resolveID(w.ctx, c, name)
	if err != nil {
		return ours(err)
	}
	if _, given := env["TERM"]; here && !given && knownTerms[os.Getenv("TERM")] {
		if env == nil {
			env = map[string]string{}
		}
		env["TERM"] = os.Getenv("TERM")
	}
	s := &session{p: p, c: c, id: id, here: here, resized: make(chan os.Signal, 1)}
	signal.Notify(s.resized, unix.SIGWINCH) // before the size is asked for: none is missed
	defer signal.Stop(s.resized)
	size := s.size()
	ctx, end := context.WithCancelCause(w.ctx)
	defer end(nil)
	run, err := c.Start(ctx, id, v1.ProcessStart{Argv: argv, Cwd: ptr(o.cwd), User: ptr(o.user), Env: mapPtr(env), Pty: &size})
	if err != nil {
		return ours(err)
	}
	defer run.Close()
	return s.attach(ctx, end, run)
}

// session is our terminal on that of a run.
type session struct {
	p       *program
	c       *client.Client
	id      string
	here    bool // standard input is a terminal
	resized chan os.Signal
	wg      sync.WaitGroup
}

// errLeft ends a session by the keys for it.
var errLeft = errors.New("left by its keys")

// attach joins our terminal to the run's until its end. Ours is in raw mode
// meanwhile, and what it was afterwards, whatever happens.
func (s *session) attach(ctx context.Context, end context.CancelCauseFunc, run *client.Run) error {
	restore := func() {}
	if s.here {
		var err error
		if restore, err = makeRaw(s.p.In); err != nil {
			return ours(fmt.Errorf("switch the terminal to raw mode: %w", err))
		}
	}
	defer restore()
	in, err := newCancelReader(s.p.In)
	if err != nil {
		return ours(fmt.Errorf("read standard input: %w", err))
	}
	defer in.close()
	typed := make(chan []byte, maxAhead)
	s.start(restore, func() { s.listen(ctx, end, in, typed) })
	s.start(restore, func() { s.typeOn(ctx, end, typed, run.ID) })
	s.start(restore, func() { s.follow(ctx, run.ID) })
	out, err := s.p.follow(run)
	end(nil) // unless it is what ended the stream
	in.cancel()
	s.wg.Wait()
	restore()
	if err == nil {
		return s.p.exitOf(out)
	}
	if s.here && isTerminal(s.p.Out) {
		// Whoever drew on the screen cannot tidy it up any more.
		if _, err := io.WriteString(s.p.Out, tidy); err != nil {
			return ours(err)
		}
	}
	if errors.Is(err, errLeft) {
		fmt.Fprintf(s.p.Err, "ramet: left the shell in %s; what still ran in it gets SIGHUP\n", s.id)
		return exitStatus(exitSignalBase + int(unix.SIGHUP))
	}
	return ours(fmt.Errorf("the shell in %s is cut off: %w", s.id, err))
}

// start starts a goroutine of the session.
func (s *session) start(restore func(), f func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		guarded(restore, f)
	}()
}

// guarded calls f, and gives the terminal back first if it panics: what is
// deferred elsewhere does not run then.
func guarded(restore, f func()) {
	defer func() {
		if r := recover(); r != nil {
			restore()
			panic(r)
		}
	}()
	f()
}

// maxAhead is how many reads of what is typed wait for the sandbox to take them.
const maxAhead = 256

// listen reads what is typed, so that the keys that leave are seen also while the
// sandbox takes nothing, and closes typed at the end.
func (s *session) listen(ctx context.Context, end context.CancelCauseFunc, in io.Reader, typed chan<- []byte) {
	defer close(typed)
	if s.here {
		in = &keys{in: in, fresh: true}
	}
	for {
		buf := make([]byte, 4<<10)
		n, err := in.Read(buf)
		if n > 0 {
			select {
			case typed <- buf[:n]:
			case <-ctx.Done():
				return
			}
		}
		if errors.Is(err, errLeft) {
			end(errLeft)
		}
		if err != nil {
			return
		}
	}
}

// typeOn passes on what is typed: each time one request, on a connection that is
// kept. What is typed meanwhile goes together in the next one.
func (s *session) typeOn(ctx context.Context, end context.CancelCauseFunc, typed <-chan []byte, run string) {
	for open := true; open; {
		var text []byte
		select {
		case text, open = <-typed:
		case <-ctx.Done():
			return
		}
		for more := open; more && len(text) < 64<<10; {
			select {
			case next, ok := <-typed:
				text, more, open = append(text, next...), ok, ok
			default:
				more = false
			}
		}
		eof := !open && !s.here // a terminal of ours that is gone ends us by its signal
		if len(text) == 0 && !eof {
			continue
		}
		if err := s.c.WriteStdin(ctx, s.id, run, bytes.NewReader(text), eof); err != nil {
			var api *client.Error
			if ctx.Err() == nil && !errors.As(err, &api) { // the server's reason is in its stream
				end(fmt.Errorf("pass on what was typed: %w", err))
			}
			return
		}
	}
}

// follow lets the size of the run's terminal follow that of ours.
func (s *session) follow(ctx context.Context, run string) {
	for {
		select {
		case <-s.resized:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		// A call that fails is followed by another at the next change, and a server that is gone
		// is told by the stream.
		_ = s.c.Resize(call, s.id, run, s.size())
		cancel()
	}
}

// size is that of our terminal, or an ordinary one.
func (s *session) size() v1.PtySize {
	for _, f := range []*os.File{s.p.In, s.p.Out, s.p.Err} {
		w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
		if err == nil && w.Col > 0 && w.Row > 0 {
			return v1.PtySize{Columns: int(w.Col), Rows: int(w.Row)}
		}
	}
	return v1.PtySize{Columns: 80, Rows: 24}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

type execOptions struct {
	cwd     string
	user    string
	timeout time.Duration
	stdin   bool
	noStdin bool
	detach  bool
	noWake  bool
	env     envFlags
}

func (p *program) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec ID [flags] -- CMD [ARG]...",
		Short: "Run a program in a sandbox",
		Long: `Run a program in a sandbox: its output is shown as it comes, on the same stream
as it was written to, and its exit code is this command's.

Standard input is passed on, with its end, unless it is a terminal (-i passes it
on even then, line by line; -n never). Ctrl-C sends SIGINT to the program and
its children; a second Ctrl-C ends this command, and with it the program. There
is no shell in between: for pipes and variables run one, as in the examples.

Exit codes other than the program's: 2 wrong usage, 124 --timeout was over,
125 Ramet failed, 126 or 127 the program could not be started, 128+N signal N.`,
		Example: `  ramet exec 3f2a -- python3 -m pip list
  ramet exec 3f2a --cwd /srv --env DEBUG=1 --user user -- make test
  ramet exec 3f2a -- bash -c 'ps aux | wc -l'
  tar c src | ramet exec 3f2a -- tar x -C /srv
  ramet exec 3f2a --detach -- python3 -m http.server 8000`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("missing argument: ID -- CMD")
			}
			if dash := cmd.ArgsLenAtDash(); dash > 1 {
				return fmt.Errorf("unexpected argument %q before --", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w := watchSignals(awake(cmd.Context(), o.noWake))
			defer w.stop()
			return w.explain(p.execProgram(w, o, args[0], args[1:]))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return p.completeIDs(cmd, args, toComplete)
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w (put -- before the program, so that its flags are its own)", err)
	})
	f := cmd.Flags()
	f.StringVar(&o.cwd, "cwd", "", "working directory (default: the user's home)")
	f.StringVarP(&o.user, "user", "u", "", "user of the sandbox to run as (default root)")
	f.DurationVarP(&o.timeout, "timeout", "t", 0, "interrupt the program after this time, such as 10s (default: never)")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input on even from a terminal")
	f.BoolVarP(&o.noStdin, "no-stdin", "n", false, "do not pass standard input on")
	f.BoolVarP(&o.detach, "detach", "d", false, "leave the program running and print its process id in the sandbox")
	for name, arg := range map[string]string{"cwd": "DIR", "user": "NAME", "timeout": "TIME"} {
		nameValue(f, name, arg)
	}
	f.Lookup("timeout").DefValue = ""
	cmd.MarkFlagsMutuallyExclusive("stdin", "no-stdin")
	cmd.MarkFlagsMutuallyExclusive("stdin", "detach")
	o.env.add(cmd, "of the program")
	addNoWake(cmd, &o.noWake)
	cmd.RegisterFlagCompletionFunc("user", cobra.FixedCompletions([]string{"root", "user", "sandbox"}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"cwd", "timeout"} {
		cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

func (p *program) execProgram(w *signals, o execOptions, name string, argv []string) error {
	if o.timeout < 0 {
		return usageErrorf("--timeout %w", errNoNegative)
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
	stdin := !o.noStdin && !o.detach && (o.stdin || !isTerminal(p.In))
	run, err := c.Start(w.ctx, id, v1.ProcessStart{
		Argv: argv, Cwd: ptr(o.cwd), Env: mapPtr(env), User: ptr(o.user),
		TimeoutS: ptr(o.timeout.Seconds()), Stdin: ptr(stdin), Detach: ptr(o.detach),
	})
	if err != nil {
		return ours(err)
	}
	defer run.Close()
	if o.detach {
		return p.leaveRunning(run)
	}
	w.onInterrupt(p.interrupter(c, id, run.ID))
	defer w.onInterrupt(nil)
	if stdin {
		in, err := p.sendStdin(w.ctx, c, id, run.ID)
		if err != nil {
			return ours(err)
		}
		defer in.stop()
	}
	out, err := p.follow(run)
	if err != nil {
		return ours(err)
	}
	return p.exitOf(out)
}

// leaveRunning waits until a detached program runs, and says how to find it.
func (p *program) leaveRunning(run *client.Run) error {
	for {
		e, err := run.Next()
		if err != nil {
			return ours(err)
		}
		switch e.Type {
		case client.EventStarted:
			pid, err := client.Number(e)
			if err != nil {
				return ours(err)
			}
			_, err = fmt.Fprintln(p.Out, pid)
			return ours(err)
		case client.EventExit: // it could not be started
			o, err := readOutcome(e)
			if err != nil {
				return ours(err)
			}
			return p.exitOf(o)
		}
	}
}

// stdinSender passes our standard input on to a program.
type stdinSender struct {
	in     *cancelReader
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (p *program) sendStdin(ctx context.Context, c *client.Client, id, run string) (*stdinSender, error) {
	in, err := newCancelReader(p.In)
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stdinSender{in: in, cancel: cancel}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		err := c.WriteStdin(ctx, id, run, in, true)
		var api *client.Error
		if err == nil || ctx.Err() != nil || errors.As(err, &api) || errors.Is(err, os.ErrClosed) {
			// A program may end, or close its standard input, before it has
			// read everything. Its exit code tells; a pipe's writer is told no more.
			return
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			fmt.Fprintf(p.Err, "ramet: pass standard input on: %s\n", clean(err.Error()))
		}
	}()
	return s, nil
}

// stop ends the sender, also while it waits for input that may never come.
func (s *stdinSender) stop() {
	s.in.cancel()
	s.cancel()
	s.wg.Wait()
	s.in.close()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

type runOptions struct {
	sandbox  string
	language string
	context  string
	cwd      string
	user     string
	timeout  time.Duration
	json     bool
	keep     bool
	noWake   bool
	shape    shapeFlags
	env      envFlags
}

// cleanupTimeout bounds the removal of a sandbox that was made for one call.
const cleanupTimeout = 30 * time.Second

// maxCode bounds the code that is read from standard input, in bytes; the
// server takes no more.
const maxCode = 8 << 20

func (p *program) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] CODE|-",
		Short: "Run Python, JavaScript or bash in a sandbox",
		Long: `Run code in a sandbox and show its output as it comes. "-" reads the code from
standard input.

Without --sandbox a sandbox is made for this call and removed after it, also
after Ctrl-C. With --sandbox ID the code runs in that sandbox, which stays:
Python and JavaScript run in its interpreters, where variables, imports and open
files live on from call to call. Bash is a fresh process each time. With --context
the code runs in an interpreter that 'ramet context create' has made.

As in an interactive Python the value of the last expression is shown. Ctrl-C
interrupts the code as it would on your own machine (KeyboardInterrupt); a second
Ctrl-C ends this command. A sandbox that you named is never removed.

The exit code is that of the code: 1 after an uncaught exception, sys.exit(N)'s
N. Ramet's own: 2 wrong usage, 124 --timeout was over, 125 Ramet failed.`,
		Example: `  ramet run 'print(6 * 7)'
  ramet run - < script.py
  ramet run --lang bash 'uname -a; df -h /'
  ramet run --sandbox 3f2a 'import pandas as pd; df = pd.read_csv("data.csv")'
  ramet run --sandbox 3f2a 'df.describe()'
  ramet run --lang javascript 'await fetch("https://example.com")'
  ramet run --no-egress --timeout 10s --json - < untrusted.py`,
		Args: exactly(1, "CODE, or - to read it from standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := watchSignals(awake(cmd.Context(), o.noWake))
			defer w.stop()
			return w.explain(p.runCode(w, cmd, o, args[0]))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVarP(&o.sandbox, "sandbox", "s", "", "run in this sandbox instead of one made for the call")
	f.StringVarP(&o.language, "lang", "l", "", "language: python, javascript or bash (default python, or that of --context)")
	f.StringVar(&o.context, "context", "", "interpreter of the sandbox to run in")
	f.StringVar(&o.cwd, "cwd", "", "working directory for this call")
	f.StringVarP(&o.user, "user", "u", "", "user of the sandbox to run as; only for bash (default root)")
	f.DurationVarP(&o.timeout, "timeout", "t", 0, "interrupt the code after this time, such as 10s (default: never)")
	f.BoolVar(&o.json, "json", false, "print one JSON object at the end instead of the output as it comes")
	f.BoolVar(&o.keep, "keep", false, "keep the sandbox that is made for this call, and print its id on standard error")
	addNoWake(cmd, &o.noWake)
	o.env.add(cmd, "for this call")
	o.shape.add(p, cmd)
	for name, arg := range map[string]string{"sandbox": "ID", "lang": "NAME", "context": "CONTEXT", "cwd": "DIR", "user": "NAME", "timeout": "TIME"} {
		nameValue(f, name, arg)
	}
	f.Lookup("timeout").DefValue = ""
	cmd.RegisterFlagCompletionFunc("sandbox", p.completeIDs)
	cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions([]string{"python", "javascript", "bash"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("context", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return p.contextsOf(cmd, o.sandbox), cobra.ShellCompDirectiveNoFileComp
	})
	cmd.RegisterFlagCompletionFunc("user", cobra.FixedCompletions([]string{"root", "user", "sandbox"}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"cwd", "timeout"} {
		cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// runCode does all of 'run'. What fails in it is Ramet's failure, unless it is
// an exitStatus: that is the code's.
func (p *program) runCode(w *signals, cmd *cobra.Command, o runOptions, code string) error {
	req, create, err := p.runRequests(cmd, o, code)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return ours(err)
	}
	id, release, err := p.runSandbox(w.ctx, c, o, create)
	if err != nil {
		return ours(err)
	}
	defer release()

	run, err := c.Exec(w.ctx, id, req)
	if err != nil {
		return ours(err)
	}
	defer run.Close()
	w.onInterrupt(p.interrupter(c, id, run.ID))
	defer w.onInterrupt(nil)
	if o.json {
		return p.runJSON(run, id, o.sandbox != "" || o.keep)
	}
	out, err := p.follow(run)
	if err != nil {
		return ours(err)
	}
	return p.exitOf(out)
}

// ours marks an error as Ramet's failure; nil and an exitStatus stay as they are.
func ours(err error) error {
	var status exitStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return &runError{err}
}

// runRequests makes the requests of a run: the code's, and the sandbox's if it needs one.
func (p *program) runRequests(cmd *cobra.Command, o runOptions, code string) (v1.ExecRequest, v1.SandboxCreate, error) {
	var req v1.ExecRequest
	var create v1.SandboxCreate
	if o.timeout < 0 {
		return req, create, usageErrorf("--timeout %w", errNoNegative)
	}
	if o.sandbox != "" {
		for _, name := range []string{"template", "memory", "vcpus", "disk", "no-egress", "egress-allow", "egress-deny", "egress-order", "metadata", "isolation", "keep"} {
			if cmd.Flags().Changed(name) {
				return req, create, usageErrorf("--%s is for a new sandbox, but --sandbox names one", name)
			}
		}
	}
	if o.context != "" && o.sandbox == "" {
		return req, create, usageErrorf("--context names an interpreter of a sandbox; name that by --sandbox")
	}
	env, err := o.env.values()
	if err != nil {
		return req, create, err
	}
	if code == "-" {
		if code, err = p.readCode(); err != nil {
			return req, create, err
		}
	}
	if o.sandbox == "" {
		if create, err = o.shape.request(p, cmd, nil); err != nil {
			return req, create, err
		}
	}
	seconds := o.timeout.Seconds()
	req = v1.ExecRequest{
		Code: code, Language: ptr(o.language), Context: ptr(o.context), Env: mapPtr(env),
		Cwd: ptr(o.cwd), User: ptr(o.user), TimeoutS: ptr(seconds),
	}
	return req, create, nil
}

func (p *program) readCode() (string, error) {
	if isTerminal(p.In) {
		fmt.Fprintln(p.Err, "Type the code; Ctrl-D ends it.")
	}
	b, err := io.ReadAll(io.LimitReader(p.In, maxCode+1))
	if err != nil {
		return "", ours(fmt.Errorf("read the code from standard input: %w", err))
	}
	if len(b) > maxCode {
		return "", usageErrorf("the code is longer than %d MB: copy it into the sandbox with 'ramet cp' and import it", maxCode>>20)
	}
	return string(b), nil
}

// runSandbox returns the sandbox to run in, and what to do when the run is over.
func (p *program) runSandbox(ctx context.Context, c *client.Client, o runOptions, create v1.SandboxCreate) (string, func(), error) {
	if o.sandbox != "" {
		id, err := resolveID(ctx, c, o.sandbox)
		return id, func() {}, err
	}
	sb, err := p.create(ctx, c, create)
	if err != nil {
		return "", nil, err
	}
	if o.keep {
		fmt.Fprintln(p.Err, sb.Id)
		return sb.Id, func() {}, nil
	}
	release := func() {
		// Also when ctx has ended: that is when it matters most.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		var api *client.Error
		if err := c.Delete(ctx, sb.Id); err != nil && !(errors.As(err, &api) && api.Status == 404) {
			fmt.Fprintf(p.Err, "ramet: the sandbox %s could not be removed: %s; 'ramet rm %s' tries again\n", sb.Id, clean(err.Error()), sb.Id)
		}
	}
	return sb.Id, release, nil
}

// interrupter returns what the first Ctrl-C does.
func (p *program) interrupter(c *client.Client, id, run string) func(context.Context) {
	return func(ctx context.Context) {
		if isTerminal(p.Err) {
			fmt.Fprintln(p.Err, "\ninterrupting; Ctrl-C again leaves")
		}
		var api *client.Error
		if err := c.Signal(ctx, id, run, "SIGINT"); err != nil && ctx.Err() == nil && !(errors.As(err, &api) && api.Status == 404) {
			// It may have ended a moment ago (404). Everything else is news.
			fmt.Fprintf(p.Err, "ramet: interrupt the code: %s\n", clean(err.Error()))
		}
	}
}

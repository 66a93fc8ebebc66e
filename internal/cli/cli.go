// Package cli is the command line: it reads flags, arguments and settings,
// calls a server through package client (or starts one through Engine), and
// prints. It knows how a terminal looks and how a command ends; it knows
// nothing of machines. Every command is one file named after it. Start reading
// at Main and newRoot; the exit codes are in exit.go.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
)

// Engine is the server as the command line sees it.
type Engine interface {
	// Prepare checks the host and builds what is missing: the template and its
	// golden snapshot. It reports through package progress.
	Prepare(ctx context.Context, s config.Server) error
	// Serve serves until ctx ends, and then leaves in order. It writes
	// server.json in the data directory when it is ready.
	Serve(ctx context.Context, s config.Server) error
	// EndSandboxes ends all sandboxes of a data directory that no server uses, and
	// returns how many it ended.
	EndSandboxes(ctx context.Context, s config.Server) (int, error)
	// ShareTemplate gives a data directory the newest build of a template of another
	// one, without a copy. It returns a sandbox.NotFound when there is no build.
	ShareTemplate(from, to config.Home, name string) error
	// Restore puts a backup into the data directory, in which no server may run.
	// Records that are there are only replaced with force.
	Restore(ctx context.Context, s config.Server, backup io.Reader, force bool) error
}

// Options is what the command line runs with. Tests give their own.
type Options struct {
	Args    []string // without the program's name
	In      *os.File
	Out     *os.File
	Err     *os.File
	Engine  Engine
	Version string
	// Floors opens what 'bench' compares a server with, for the server of a data
	// directory; nil where there is no such thing.
	Floors func(home string) func(context.Context, bench.FloorConfig) (bench.Floors, error)
	// Comparisons are what 'bench --compare' measures besides, with the data
	// directory of a server on this host or ""; nil where there is no such thing.
	Comparisons func(home string) func(bench.FloorConfig) []bench.Comparison
}

// program is one run of the command line.
type program struct {
	Options
	configFile string
	resolved   *config.Resolved
	keyHint    string // why the local key could not be used
	running    bool   // arguments and flags are read; errors are no usage errors from here on
	command    *cobra.Command
}

// Main runs the command line and returns the exit code.
func Main(o Options) int {
	p := &program{Options: o}
	// With a handler, writing to a pipe that nobody reads is an error like any
	// other and not the end: 'run' still removes its sandbox.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)
	defer signal.Stop(pipe)

	root := p.newRoot()
	root.SetArgs(o.Args)
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	err := root.ExecuteContext(context.Background())
	return p.finish(err)
}

// Commands returns the tree of all commands, for programs that describe them.
func Commands() *cobra.Command {
	root := (&program{}).newRoot()
	root.DisableAutoGenTag = true
	return root
}

const rootLong = `Ramet runs sandboxes: disposable Linux computers, each a virtual machine of its
own, in which a Python interpreter lives across calls.

  ramet up --detach               start a server on this machine
  ramet run 'print(6 * 7)'        run Python in a sandbox made for this call
  id=$(ramet create)              make a sandbox that stays
  ramet run --sandbox $id 'x = 1' run in it; variables live on from call to call
  ramet exec $id -- ls -l /       run a program in it
  ramet shell $id                 open a terminal in it
  ramet cp data.csv $id:/root/    copy files into it
  ramet fork $id -n 3             make three more of it, with all that runs in it
  ramet rm $id                    remove it

Ids may be shortened to any unique beginning. Settings come from flags, else
RAMET_* environment variables, else config files: see 'ramet config --help'.`

const exitCodesHelp = `Exit codes:
  0      done
  1      the command failed; the reason is on standard error
  2      wrong usage: an unknown flag or command, a missing or bad argument
  3      no server answers
  130    ended by Ctrl-C (128 + N: by signal N)
'run', 'exec' and 'shell' end with the exit code of what they ran, or else with
  2      wrong usage
  124    its time was over (--timeout)
  125    Ramet failed: no server, no such sandbox, the connection was lost
  128+N  signal N ended it`

func (p *program) newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "ramet",
		Short:         "Sandboxes for agents on your own machine",
		Long:          rootLong + "\n\n" + exitCodesHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			p.command = cmd
			// cobra looks at these after this function, when an error is no
			// longer one of usage.
			if err := cmd.ValidateFlagGroups(); err != nil {
				return err
			}
			p.running = true
			return nil
		},
	}
	cobra.EnableCommandSorting = false              // the order below is that of a first session
	root.CompletionOptions.DisableDefaultCmd = true // ours is in completion.go
	root.PersistentFlags().StringVar(&p.configFile, "config", "", "config file to read instead of the usual ones")
	nameValue(root.PersistentFlags(), "config", "FILE")
	addSettingFlags(root.PersistentFlags(), "home", "url", "ca")
	root.MarkPersistentFlagFilename("config", "yaml", "yml")
	root.MarkPersistentFlagDirname("data")
	root.MarkPersistentFlagFilename("ca", "pem", "crt")

	root.AddGroup(
		&cobra.Group{ID: "server", Title: "The server:"},
		&cobra.Group{ID: "sandboxes", Title: "Sandboxes:"},
		&cobra.Group{ID: "state", Title: "State of sandboxes:"},
		&cobra.Group{ID: "manage", Title: "Templates, keys and projects:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("server", p.upCommand(), p.downCommand(), p.statusCommand(), p.envCommand(), p.doctorCommand(), p.benchCommand(), p.configCommand(),
		p.backupCommand(), p.restoreCommand(), p.duCommand(), p.gcCommand(), p.bugreportCommand())
	add("sandboxes", p.createCommand(), p.runCommand(), p.contextCommand(), p.execCommand(), p.shellCommand(), p.cpCommand(),
		p.lsCommand(), p.getCommand(), p.updateCommand(), p.egressCommand(), p.portCommand(), p.rmCommand(), p.logsCommand(), p.consoleCommand(),
		p.eventsCommand())
	add("state", p.forkCommand(), p.mergeCommand(), p.hibernateCommand(), p.wakeCommand(), p.checkpointCommand(), p.spaceCommand(),
		p.treeCommand(), p.diffCommand())
	add("manage", p.templateCommand(), p.keysCommand(), p.projectCommand())
	add("", p.completionCommand(), p.versionCommand())
	return root
}

// settings resolves the settings once.
func (p *program) settings() (*config.Resolved, error) {
	if p.resolved != nil {
		return p.resolved, nil
	}
	src := config.Sources{Flags: map[string]string{}, Getenv: os.LookupEnv, File: p.configFile}
	src.UserDir, _ = os.UserHomeDir() // without a home there is no user's config file
	src.Hostname, _ = os.Hostname()   // without a name the node is called "node"
	for _, s := range config.Settings() {
		if s.Flag() == "" {
			continue
		}
		f := p.command.Flag(s.Flag())
		if f == nil || !f.Changed {
			continue
		}
		if _, ours := f.Annotations[settingFlag]; ours {
			src.Flags[s.Key] = f.Value.String()
		}
	}
	r, err := config.Load(src)
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	p.resolved = r
	return r, nil
}

// connect returns a client of the server that the settings name.
func (p *program) connect() (*client.Client, error) {
	r, err := p.settings()
	if err != nil {
		return nil, err
	}
	c := r.Client()
	key := c.APIKey
	if key == "" {
		key = p.localKey(c)
	}
	trust, err := trustFor(c)
	if err != nil {
		return nil, err
	}
	return client.New(c.URL, key, "ramet/"+p.Version, trust...)
}

// localKey reads the key that the local server keeps for this program. It goes
// to that server alone, while it runs: at any other time a stranger may listen on its address.
func (p *program) localKey(c config.Client) string {
	home := config.Home(c.Home)
	local := serves(home, c.URL)
	if !local && !localURL(c.URL) {
		p.keyHint = "set RAMET_API_KEY to a key of that server"
		return ""
	}
	path := home.Key()
	if _, err := os.Stat(path); err == nil && !local {
		p.keyHint = fmt.Sprintf("the server of %s does not run at %s, so its key is not used: set RAMET_HOME to the data directory of the server there, or RAMET_API_KEY to a key", c.Home, c.URL)
		return ""
	}
	key, err := readKey(path)
	switch {
	case err == nil:
		return key
	case errors.Is(err, os.ErrPermission):
		p.keyHint = fmt.Sprintf("%s may only be read by the user of the server: use sudo, or set RAMET_API_KEY to a key from 'ramet keys create'", path)
	case errors.Is(err, os.ErrNotExist):
		p.keyHint = fmt.Sprintf("there is no key at %s: set RAMET_HOME to the server's data directory, or RAMET_API_KEY to a key", path)
	default:
		p.keyHint = err.Error()
	}
	return ""
}

// withSignals returns a context that ends at Ctrl-C, SIGTERM or SIGHUP, for
// commands that have nothing else to do with them.
func withSignals(run func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		w := watchSignals(cmd.Context())
		defer w.stop()
		return w.explain(run(w.ctx, cmd, args))
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

func (p *program) downCommand() *cobra.Command {
	var timeout time.Duration
	var sandboxes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the server on this machine",
		Long: `Stop the server that uses the data directory, and wait until it has ended.

Its sandboxes live on, with everything that runs in them, until the next
'ramet up' on the same data directory takes them over: so a server can be
stopped and upgraded under them. Meanwhile they cannot be reached and have no
network; their open network connections are lost. A reboot of the host ends them.

With --sandboxes they are ended too, those of all projects: what is in their
memory and on their disks is lost, so copy out what you want to keep ('ramet
cp'). It also ends those that an earlier 'down' has left. Templates and keys
stay. When no server runs, 'down' says so and is content.`,
		Example: `  ramet down
  ramet down --sandboxes
  ramet down --data /srv/ramet
  ramet down --timeout 2m`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if err := p.down(ctx, timeout, sandboxes); err != nil || !sandboxes {
				return err
			}
			return p.endSandboxes(ctx)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 60*time.Second, "how long to wait for the server's end")
	nameValue(cmd.Flags(), "timeout", "TIME")
	cmd.Flags().BoolVar(&sandboxes, "sandboxes", false, "end the sandboxes too, of all projects; what is in them is lost")
	return cmd
}

// down ends the server. With ending, somebody else tells of its sandboxes.
func (p *program) down(ctx context.Context, timeout time.Duration, ending bool) error {
	r, err := p.settings()
	if err != nil {
		return err
	}
	home := config.Home(r.Server().Home)
	info, err := config.ReadServerInfo(home)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var proc *config.Process
	if err == nil {
		proc, err = info.Open()
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintf(p.Out, "No server runs on %s.\n", home)
		return nil
	}
	if err != nil {
		return err
	}
	defer proc.Close()
	left := p.liveSandboxes(ctx)
	if err := proc.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		if errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("the server (pid %d) belongs to another user: use sudo", info.PID)
		}
		return fmt.Errorf("end the server (pid %d): %w", info.PID, err)
	}
	if err := waitEnd(ctx, proc, timeout); err != nil {
		return fmt.Errorf("the server (pid %d) %w: look at %s", info.PID, err, home.Log())
	}
	fmt.Fprintf(p.Out, "The server (pid %d) has ended.\n", info.PID)
	if left > 0 && !ending {
		fmt.Fprintf(p.Out, "%s: 'ramet up' takes over, 'ramet down --sandboxes' ends what is left.\n", count(left, "sandbox lives on", "sandboxes live on"))
	}
	return nil
}

// endSandboxes ends what no server looks after any more.
func (p *program) endSandboxes(ctx context.Context) error {
	r, err := p.settings()
	if err != nil {
		return err
	}
	s := r.Server()
	if s.LogLevel == "info" {
		s.LogLevel = "warn"
	}
	if _, err := os.Stat(config.Home(s.Home).Database()); errors.Is(err, os.ErrNotExist) {
		return nil // no server was ever here
	}
	n, err := p.Engine.EndSandboxes(ctx, s)
	if n > 0 {
		fmt.Fprintf(p.Out, "%s.\n", count(n, "sandbox was ended", "sandboxes were ended"))
	}
	if err != nil {
		return fmt.Errorf("end the sandboxes: %w", err)
	}
	return nil
}

// waitEnd waits until the process has ended, in slices so that Ctrl-C is seen.
func waitEnd(ctx context.Context, proc *config.Process, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for time.Now().Before(deadline) {
		done, err := proc.Wait(min(100*time.Millisecond, time.Until(deadline)))
		if err != nil || done {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("was asked to end but still runs after %s", timeout)
}

// liveSandboxes counts what the server leaves running; 0 when it cannot tell.
func (p *program) liveSandboxes(ctx context.Context) int {
	c, err := p.connect()
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	n := 0
	for sb, err := range c.Sandboxes(ctx, client.ListFilter{}) {
		if err != nil {
			return 0
		}
		if sb.Status == string(sandbox.Running) {
			n++
		}
	}
	return n
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

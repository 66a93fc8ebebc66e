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
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the server on this machine",
		Long: `Stop the server that uses the data directory, and wait until it has ended.

Its sandboxes end with it: what is in their memory and on their disks is lost, so
copy out what you want to keep ('ramet cp'). Templates and keys stay. When no
server runs, 'down' says so and is content.`,
		Example: `  ramet down
  ramet down --data /srv/ramet
  ramet down --timeout 2m`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return p.down(ctx, timeout)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 60*time.Second, "how long to wait for the server's end")
	nameValue(cmd.Flags(), "timeout", "TIME")
	return cmd
}

func (p *program) down(ctx context.Context, timeout time.Duration) error {
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
	if left > 0 {
		fmt.Fprintf(p.Out, "%s ended with it.\n", count(left, "sandbox", "sandboxes"))
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

// liveSandboxes counts what will end with the server; 0 when it cannot tell.
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

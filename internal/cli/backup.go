package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func (p *program) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up the server's records while it runs",
		Long: `Write a consistent backup of the server's records into a file: projects, keys,
sandboxes, events, and the server's own key. The server goes on meanwhile.
Templates are not in it, they can be built again; nor is what is in sandboxes.

The file is only readable by you. Keep it so: whoever has it has the server's key.
With - it goes to standard output.`,
		Example: `  ramet backup /srv/backups/ramet-$(date +%F).tar.gz
  ramet backup - | ssh backup-host 'cat > ramet.tar.gz'`,
		Args: exactly(1, "FILE"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			body, err := c.Backup(ctx)
			if err != nil {
				return fmt.Errorf("back up: %w", err)
			}
			defer body.Close()
			if args[0] == "-" {
				if isTerminal(p.Out) {
					return usageErrorf("a backup is not for a terminal: give the name of a file")
				}
				_, err = io.Copy(p.Out, body)
				return err
			}
			return saveWhole(args[0], body)
		}),
	}
}

// saveWhole writes a file that only its owner can read, whole or not at all.
func saveWhole(path string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

func (p *program) restoreCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup into the data directory",
		Long: `Restore a backup into the data directory, in which no server may run. The whole
file is read and checked before anything is replaced. Records that are there
already are only replaced with --force, and kept beside the new ones.

To take a sandbox back to a checkpoint see 'ramet checkpoint restore'.

Sandboxes that the backup knows as running and whose machines are gone become
failed at the next start. Templates are built again by 'ramet up'.`,
		Example: `  ramet down
  ramet restore /srv/backups/ramet-2026-01-02.tar.gz --force
  ramet up --detach`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return errTwoArguments
			}
			return exactly(1, "FILE")(cmd, args)
		},
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			r, err := p.settings()
			if err != nil {
				return err
			}
			in := p.In
			if args[0] != "-" {
				if in, err = os.Open(args[0]); err != nil {
					return err
				}
				defer in.Close()
			}
			if err := p.Engine.Restore(ctx, r.Server(), in, force); err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			_, err = fmt.Fprintf(p.Out, "Restored into %s. Start the server with 'ramet up'.\n", r.Server().Home)
			return err
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace records that are there, and keep them beside the new ones")
	return cmd
}

// errTwoArguments explains what the other 'restore' is for.
var errTwoArguments = errors.New("'ramet restore' takes one FILE, a backup; a sandbox goes back with 'ramet checkpoint restore ID CHECKPOINT'")

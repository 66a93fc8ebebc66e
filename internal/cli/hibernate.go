package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

func (p *program) hibernateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "hibernate ID...",
		Short: "Put sandboxes to sleep on the disk",
		Long: `Save the memory and disk of sandboxes, and end their machines: they use no memory
and no CPU until they wake. Processes, the Python interpreter and open files are
there again then. A sandbox that cannot be saved goes on running.

Any call to a hibernated sandbox wakes it. Sandboxes hibernate by themselves when
their idle timeout is over.`,
		Example: `  ramet hibernate 3f2a
  ramet hibernate $(ramet ls -q --status running)`,
		Args: atLeast(1, "ID"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return p.changeEach(ctx, "hibernate", args, asJSON, (*client.Client).Hibernate)
		}),
		ValidArgsFunction: p.completeIDs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandboxes as JSON instead of their ids")
	return cmd
}

func (p *program) wakeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "wake ID...",
		Short: "Wake hibernated sandboxes",
		Long: `Wake sandboxes that hibernate; those that run already are left alone. It returns
when they take calls. When the saved memory does not fit this host any more the
sandbox boots from its saved disk, and a line on standard error says why.`,
		Example: `  ramet wake 3f2a
  ramet wake $(ramet ls -q --status hibernated)
  ramet wake 3f2a --json | jq '.sandboxes[0].boot_note'`,
		Args: atLeast(1, "ID"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return p.changeEach(ctx, "wake", args, asJSON, (*client.Client).Wake)
		}),
		ValidArgsFunction: p.completeIDs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandboxes as JSON instead of their ids")
	return cmd
}

// changeEach changes sandboxes one after the other, also after failures.
func (p *program) changeEach(ctx context.Context, verb string, names []string, asJSON bool, change func(*client.Client, context.Context, string) (*v1.Sandbox, error)) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	changed := []*v1.Sandbox{}
	err = p.each(names, func(name string) error {
		id, err := resolveID(ctx, c, name)
		if err != nil {
			return err
		}
		done := p.showWaiting(verb + " " + shortID(id))
		sb, err := change(c, ctx, id)
		done()
		if err != nil {
			return fmt.Errorf("%s %s: %w", verb, name, err)
		}
		if asJSON {
			changed = append(changed, sb)
			return nil
		}
		return p.showChanged(sb, false)
	})
	if err == nil && asJSON {
		return printJSON(p.Out, map[string]any{"sandboxes": changed})
	}
	return err
}

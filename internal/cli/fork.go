package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// maxForks is how many children a call can make.
const maxForks = 32

func (p *program) forkCommand() *cobra.Command {
	var n int
	var keepSeed, asJSON bool
	cmd := &cobra.Command{
		Use:   "fork ID",
		Short: "Make copies of a running sandbox, with all that runs in it",
		Long: `Make sandboxes that have the memory, processes, files and settings that this one
has at one instant, and print their ids, one a line. Each goes on by itself, with
an id, a clock and randomness of its own. The parent stands still for milliseconds
and goes on as if nothing had happened. All children are made or none.

The generators of Python's random and of numpy get new seeds in each child; with
--keep-seed all of them draw the numbers that the parent would draw next.`,
		Example: `  ramet fork 3f2a
  for id in $(ramet fork 3f2a -n 5); do ramet run --sandbox $id 'attempt()'; done
  ramet fork 3f2a -n 5 --json | jq .paused_ms`,
		Args: exactly(1, "ID"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if n < 1 || n > maxForks {
				return usageErrorf("-n must be 1 to %d", maxForks)
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveID(ctx, c, args[0])
			if err != nil {
				return err
			}
			start := time.Now()
			done := p.showWaiting("forking " + shortID(id))
			reseed := !keepSeed
			forked, err := c.Fork(ctx, id, v1.ForkRequest{N: &n, Reseed: &reseed})
			done()
			if err != nil {
				return fmt.Errorf("fork %s: %w", args[0], err)
			}
			if asJSON {
				return printJSON(p.Out, forked)
			}
			if isTerminal(p.Err) {
				fmt.Fprintf(p.Err, "%d running after %s; the parent stood still for %s%s\n", len(forked.Children),
					milliseconds(float64(time.Since(start).Microseconds())/1000), milliseconds(forked.PausedMs), timings(&forked.TimingsMs))
			}
			for _, child := range forked.Children {
				if _, err := fmt.Fprintln(p.Out, child); err != nil {
					return err
				}
			}
			return nil
		}),
		ValidArgsFunction: p.completeOneID,
	}
	cmd.Flags().IntVarP(&n, "number", "n", 1, "how many, 1 to 32")
	cmd.Flags().BoolVar(&keepSeed, "keep-seed", false, "leave the state of Python's and numpy's random generators")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of ids")
	nameValue(cmd.Flags(), "number", "N")
	cmd.RegisterFlagCompletionFunc("number", cobra.NoFileCompletions)
	return cmd
}

func (p *program) mergeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "merge PARENT WINNER",
		Short: "Make a sandbox what another one is",
		Long: `Give the sandbox PARENT the machine of WINNER, with its memory, processes and
files. PARENT keeps its id and settings; what ran in its own machine ends. The id
WINNER is retired, and what runs in it goes on under the id of PARENT. It happens
as a whole or not at all.`,
		Example: `  child=$(ramet fork 3f2a)
  ramet run --sandbox $child 'attempt()' && ramet merge 3f2a $child`,
		Args: exactly(2, "PARENT and WINNER"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			parent, err := resolveID(ctx, c, args[0])
			if err != nil {
				return err
			}
			winner, err := resolveID(ctx, c, args[1])
			if err != nil {
				return err
			}
			sb, err := c.Merge(ctx, parent, winner)
			if err != nil {
				return fmt.Errorf("merge %s into %s: %w", args[1], args[0], err)
			}
			return p.showChanged(sb, asJSON)
		}),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.completeIDs(cmd, args, toComplete)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandbox as JSON instead of its id")
	return cmd
}

// showChanged prints a sandbox whose machine was started or replaced, and on a
// terminal what took the time and what a person should know.
func (p *program) showChanged(sb *v1.Sandbox, asJSON bool) error {
	if asJSON {
		return printJSON(p.Out, sb)
	}
	if sb.BootNote != nil {
		fmt.Fprintf(p.Err, "ramet: %s\n", clean(*sb.BootNote))
	}
	if sb.TimingsMs != nil && isTerminal(p.Err) {
		fmt.Fprintf(p.Err, "%s after %s%s\n", clean(sb.Status), milliseconds((*sb.TimingsMs)["total"]), timings(sb.TimingsMs))
	}
	_, err := fmt.Fprintln(p.Out, sb.Id)
	return err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

func (p *program) diffCommand() *cobra.Command {
	var exitCode, noWake, asJSON bool
	cmd := &cobra.Command{
		Use:   "diff A B [PATH]...",
		Short: "Show which files differ between two sandboxes",
		Long: `Show which files differ between the sandboxes A and B: A before a path that only B
has (added), D before one that only A has (deleted), M before one whose content
differs (modified). Compared is what is in /root and /tmp, or in the PATHs.

The exit code is 0 also when there are differences. With --exit-code it is 1 then,
and 125 when Ramet failed.`,
		Example: `  ramet diff 3f2a 77b0
  ramet diff 3f2a 77b0 /srv /etc
  ramet diff 3f2a 77b0 --exit-code && ramet rm 77b0   # nothing came of it`,
		Args: atLeast(2, "A and B"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			same, err := p.diff(awake(ctx, noWake), args, asJSON)
			switch {
			case !exitCode:
				return err
			case err != nil:
				return oursUnlessUsage(err)
			case !same:
				return exitStatus(exitFailed)
			}
			return nil
		}),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.completeIDs(cmd, args, toComplete)
		},
	}
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "end with 1 when there are differences")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	addNoWake(cmd, &noWake)
	return cmd
}

// oursUnlessUsage marks an error as Ramet's failure unless the command was called wrongly.
func oursUnlessUsage(err error) error {
	var usage *usageError
	if errors.As(err, &usage) {
		return err
	}
	return ours(err)
}

// addNoWake adds --no-wake.
func addNoWake(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "no-wake", false, "fail instead of waking a sandbox that hibernates")
}

// awake returns the context of calls that wake nothing when that was asked for.
func awake(ctx context.Context, noWake bool) context.Context {
	if noWake {
		return client.WithoutWake(ctx)
	}
	return ctx
}

// diff prints the differences and returns whether there are none.
func (p *program) diff(ctx context.Context, args []string, asJSON bool) (same bool, err error) {
	c, err := p.connect()
	if err != nil {
		return false, err
	}
	a, err := resolveID(ctx, c, args[0])
	if err != nil {
		return false, err
	}
	b, err := resolveID(ctx, c, args[1])
	if err != nil {
		return false, err
	}
	req := v1.DiffRequest{Other: b}
	if len(args) > 2 {
		paths := args[2:]
		req.Paths = &paths
	}
	done := p.showWaiting("comparing")
	d, err := c.Diff(ctx, a, req)
	done()
	if err != nil {
		return false, fmt.Errorf("compare %s with %s: %w", args[0], args[1], err)
	}
	same = len(d.Added)+len(d.Removed)+len(d.Modified) == 0
	if d.Truncated {
		fmt.Fprintln(p.Err, "ramet: there are more files than can be compared; give fewer or smaller PATHs")
	}
	if asJSON {
		return same, printJSON(p.Out, d)
	}
	type line struct{ path, letter string }
	var lines []line
	for letter, paths := range map[string][]string{"A": d.Added, "D": d.Removed, "M": d.Modified} {
		for _, path := range paths {
			lines = append(lines, line{path, letter})
		}
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i].path < lines[j].path })
	for _, l := range lines {
		if _, err := fmt.Fprintf(p.Out, "%s\t%s\n", l.letter, clean(l.path)); err != nil {
			return same, err
		}
	}
	return same, nil
}

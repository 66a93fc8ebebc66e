package cli

import (
	"context"
	"fmt"
	"sort"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

func (p *program) gcCommand() *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove snapshots and files that belong to nothing",
		Long: `Remove snapshots, and what is left of machines, that no record needs any more. The
server does it by itself too. Only the server's own key may.`,
		Example: `  ramet gc --dry-run
  ramet gc --json | jq .bytes`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			report, err := c.CollectGarbage(ctx, dryRun)
			if err != nil {
				return fmt.Errorf("collect garbage: %w", err)
			}
			if asJSON {
				return printJSON(p.Out, report)
			}
			var rows [][]string
			for kind, list := range map[string][]v1.Garbage{"snapshot": report.Snapshots, "machine": report.Instances} {
				for _, g := range list {
					rows = append(rows, []string{g.Id, kind, byteSize(g.Bytes), g.Why})
				}
			}
			sort.Slice(rows, func(i, j int) bool { return rows[i][1]+rows[i][0] < rows[j][1]+rows[j][0] })
			if len(rows) > 0 {
				if err := table(p.Out, []string{"ID", "KIND", "SIZE", "WHY"}, rows); err != nil {
					return err
				}
			}
			verb := "Removed"
			if dryRun {
				verb = "Would remove"
			}
			_, err = fmt.Fprintf(p.Out, "%s %d, %s.\n", verb, len(rows), byteSize(report.Bytes))
			return err
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be removed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

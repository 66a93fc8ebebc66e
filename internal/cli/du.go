package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) duCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "du",
		Short: "Show what sandboxes and templates take of memory and disk",
		Long: `Show what each sandbox really takes of the host, beside what is promised to it,
and what the templates take on the disk. MEMORY is a machine's own pages and its
share of those that it has in common with others; OWN is what only its guest has.`,
		Example: `  ramet du
  ramet du --json | jq '[.sandboxes[].disk_bytes] | add'`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			u, err := c.Usage(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.Out, u)
			}
			var rows [][]string
			var memory, own, disk int64
			for _, s := range u.Sandboxes {
				rows = append(rows, []string{
					s.Id[4:min(16, len(s.Id))], s.Template, byteSize(s.PssBytes), byteSize(s.OwnBytes), megabytes(s.MemoryMb),
					byteSize(s.DiskBytes), megabytes(s.DiskMb),
				})
				memory, own, disk = memory+s.PssBytes, own+s.OwnBytes, disk+s.DiskBytes
			}
			rows = append(rows, []string{fmt.Sprintf("all %d", len(u.Sandboxes)), "", byteSize(memory), byteSize(own), "", byteSize(disk), ""})
			if err := table(p.Out, []string{"SANDBOX", "TEMPLATE", "MEMORY", "OWN", "PROMISED", "DISK", "PROMISED"}, rows); err != nil {
				return err
			}
			rows = nil
			for _, t := range u.Templates {
				rows = append(rows, []string{t.Name, t.Hash[:min(12, len(t.Hash))], byteSize(t.DiskBytes), fmt.Sprint(t.Sandboxes)})
			}
			fmt.Fprintln(p.Out)
			return table(p.Out, []string{"TEMPLATE", "HASH", "DISK", "SANDBOXES"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

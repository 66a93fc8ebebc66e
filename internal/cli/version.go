package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (p *program) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Long:    "Show the version of this program. That of the server is in 'ramet status'.",
		Example: "  ramet version",
		Args:    none,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(p.Out, map[string]string{"version": p.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			}
			_, err := fmt.Fprintf(p.Out, "ramet %s\n", p.Version)
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

func (p *program) consoleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "console ID",
		Short: "Show the last lines of a sandbox's serial console",
		Long: `Show the last lines that the kernel of a sandbox wrote to its serial console:
where to look when a sandbox failed or does not answer. To run commands in a
sandbox use 'ramet exec'.`,
		Example:           "  ramet console 3f2a | tail",
		Args:              exactly(1, "ID"),
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveID(ctx, c, args[0])
			if err != nil {
				return err
			}
			body, err := c.Console(ctx, id)
			if err != nil {
				return fmt.Errorf("read the console: %w", err)
			}
			defer body.Close()
			if isTerminal(p.Out) {
				return copyPrintable(p.Out, body)
			}
			_, err = io.Copy(p.Out, body)
			return err
		}),
	}
	return cmd
}

// copyPrintable copies text without the control characters in it. The guest
// wrote it, and a terminal obeys them.
func copyPrintable(w io.Writer, r io.Reader) error {
	out := bufio.NewWriter(w)
	in := bufio.NewReader(r)
	for {
		c, _, err := in.ReadRune()
		if err == io.EOF {
			return out.Flush()
		}
		if err != nil {
			return err
		}
		if c == '\n' || c == '\t' || unicode.IsPrint(c) {
			out.WriteRune(c)
		} else if !strings.ContainsRune("\r\x00", c) {
			out.WriteRune('\uFFFD')
		}
	}
}

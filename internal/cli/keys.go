package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

func (p *program) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keys",
		Aliases: []string{"key"},
		Short:   "Create, list and revoke API keys",
		Long: `API keys let programs and other machines use the server. Only a hash of a key is
kept: its secret is shown once, when it is created. The command line on the
server's own machine has a key of its own, in the data directory.`,
		Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.keysCreateCommand(), p.keysLsCommand(), p.keysRmCommand())
	return cmd
}

func (p *program) keysCreateCommand() *cobra.Command {
	var asJSON bool
	var name, project, format string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an API key and print its secret, once",
		Long: `Create an API key. Its secret is printed on standard output, and nothing else
there; nobody can show it again.

A key belongs to a project and sees only what is that project's. The server's own
key makes keys of any project, and makes the project when it is new.

Some clients take keys of one shape only: E2B's want e2b_ and hexadecimal digits,
which --format e2b makes. A key works for every client that takes its shape.`,
		Example: `  ramet keys create --name ci
  ramet keys create --format e2b
  ramet keys create --project team-a --name ci
  export RAMET_API_KEY=$(ramet keys create --name laptop)
  ramet keys create --json | jq -r .id`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			k, err := c.CreateKey(ctx, name, project, format)
			if err != nil {
				return fmt.Errorf("create a key: %w", err)
			}
			if asJSON {
				return printJSON(p.Out, k)
			}
			if isTerminal(p.Err) {
				fmt.Fprintf(p.Err, "%s is made. This is the only time that its secret is shown:\n", clean(k.Id))
			}
			_, err = fmt.Fprintln(p.Out, clean(k.Key))
			return err
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "name to recognise the key by")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the key as JSON, its secret included")
	nameValue(cmd.Flags(), "name", "NAME")
	cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	cmd.Flags().StringVar(&format, "format", "", "shape of the secret: ramet (default) or e2b")
	nameValue(cmd.Flags(), "format", "NAME")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"ramet", "e2b"}, cobra.ShellCompDirectiveNoFileComp))
	p.addProjectFlag(cmd, &project, "project that the key belongs to (default: the caller's own)")
	return cmd
}

func (p *program) keysLsCommand() *cobra.Command {
	var asJSON bool
	var project string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List API keys",
		Long:    "List the API keys, with the first characters of each secret to recognise it by.",
		Example: `  ramet keys ls
  ramet keys ls --project team-a
  ramet keys ls --json | jq -r '.keys[].id'`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			list, err := c.Keys(ctx, project)
			if err != nil {
				return fmt.Errorf("list the keys: %w", err)
			}
			if asJSON {
				return printJSON(p.Out, map[string]any{"keys": append([]v1.Key{}, list...)})
			}
			rows := make([][]string, 0, len(list))
			for _, k := range list {
				name := k.Name
				if name == "" {
					name = "-"
				}
				owner := k.Project
				if k.Admin {
					owner += " (admin)"
				}
				rows = append(rows, []string{k.Id, name, owner, k.Prefix + "…", age(k.CreatedAt, time.Now())})
			}
			return table(p.Out, []string{"ID", "NAME", "PROJECT", "SECRET", "AGE"}, rows)
		}),
	}
	p.addProjectFlag(cmd, &project, "project whose keys to list (default: the caller's own)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (p *program) keysRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"delete", "revoke"},
		Short:   "Revoke API keys",
		Long: `Revoke API keys. Calls that begin after it are refused, and calls that are under
way end.`,
		Example:           "  ramet keys rm key_0123456789abcdef",
		Args:              atLeast(1, "ID"),
		ValidArgsFunction: p.completeKeys,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			return p.each(args, func(id string) error {
				if err := c.DeleteKey(ctx, id); err != nil {
					return fmt.Errorf("revoke the key %s: %w", id, err)
				}
				_, err := fmt.Fprintln(p.Out, id)
				return err
			})
		}),
	}
}

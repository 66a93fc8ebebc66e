package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

func (p *program) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "context",
		Aliases: []string{"contexts"},
		Short:   "Manage the interpreters of a sandbox",
		Long: `A context is an interpreter of Python, JavaScript or bash in a sandbox, with a
state, a directory and a queue of its own. The first one, "default", is of Python
and always there. 'ramet run --context' runs code in another one.`,
		Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.contextCreateCommand(), p.contextLsCommand(), p.contextRestartCommand(), p.contextRmCommand())
	return cmd
}

func (p *program) contextCreateCommand() *cobra.Command {
	var language, cwd string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Start an interpreter and print its id",
		Long: `Start an interpreter in a sandbox and print its id, when it is ready. A sandbox
can have 32.`,
		Example: `  ctx=$(ramet context create 3f2a --lang javascript)
  ramet run --sandbox 3f2a --context $ctx 'const n = 41'
  ramet run --sandbox 3f2a --context $ctx 'n + 1'`,
		Args:              exactly(1, "ID"),
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(ctx, args[0])
			if err != nil {
				return err
			}
			made, err := c.CreateContext(ctx, id, v1.ContextCreate{Language: ptr(language), Cwd: ptr(cwd)})
			if err != nil {
				return fmt.Errorf("start an interpreter in %s: %w", args[0], err)
			}
			return p.showContext(made, asJSON)
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&language, "lang", "l", "python", "language: python, javascript or bash")
	f.StringVar(&cwd, "cwd", "", "directory that it starts in")
	f.BoolVar(&asJSON, "json", false, "print the context as JSON instead of its id")
	nameValue(f, "lang", "NAME")
	nameValue(f, "cwd", "DIR")
	cmd.RegisterFlagCompletionFunc("lang", cobra.FixedCompletions([]string{"python", "javascript", "bash"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("cwd", cobra.NoFileCompletions)
	return cmd
}

// connectTo returns a client and the whole id of a sandbox.
func (p *program) connectTo(ctx context.Context, prefix string) (*client.Client, string, error) {
	c, err := p.connect()
	if err != nil {
		return nil, "", err
	}
	id, err := resolveID(ctx, c, prefix)
	return c, id, err
}

func (p *program) showContext(c *v1.Context, asJSON bool) error {
	if asJSON {
		return printJSON(p.Out, c)
	}
	_, err := fmt.Fprintln(p.Out, clean(c.Id))
	return err
}

func (p *program) contextLsCommand() *cobra.Command {
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls ID",
		Aliases: []string{"list"},
		Short:   "List the interpreters of a sandbox",
		Long: `List the interpreters of a sandbox, the first one first. DIRECTORY is where they
start.`,
		Example: `  ramet context ls 3f2a
  ramet context ls 3f2a --json | jq -r '.contexts[].id'`,
		Args:              exactly(1, "ID"),
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(ctx, args[0])
			if err != nil {
				return err
			}
			list, err := c.Contexts(ctx, id)
			if err != nil {
				return fmt.Errorf("list the interpreters of %s: %w", args[0], err)
			}
			if asJSON {
				return printJSON(p.Out, map[string]any{"contexts": append([]v1.Context{}, list...)})
			}
			rows := make([][]string, 0, len(list))
			for _, x := range list {
				if quiet {
					if _, err := fmt.Fprintln(p.Out, clean(x.Id)); err != nil {
						return err
					}
				}
				state := "not started"
				if x.Running {
					state = "running"
				}
				rows = append(rows, []string{clean(x.Id), clean(x.Language), clean(x.Cwd), state})
			}
			if quiet {
				return nil
			}
			return table(p.Out, []string{"ID", "LANGUAGE", "DIRECTORY", "STATE"}, rows)
		}),
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids, one a line")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("quiet", "json")
	return cmd
}

func (p *program) contextRestartCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restart ID CONTEXT",
		Short: "Replace an interpreter by a new one",
		Long: `Replace an interpreter by a new one. Its variables are lost and the code that it
runs ends; its id, language and directory stay.`,
		Example:           "  ramet context restart 3f2a default",
		Args:              exactly(2, "ID CONTEXT"),
		ValidArgsFunction: p.completeContexts,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(ctx, args[0])
			if err != nil {
				return err
			}
			restarted, err := c.RestartContext(ctx, id, args[1])
			if err != nil {
				return fmt.Errorf("restart the interpreter %s of %s: %w", args[1], args[0], err)
			}
			return p.showContext(restarted, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the context as JSON instead of its id")
	return cmd
}

func (p *program) contextRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm ID CONTEXT...",
		Aliases: []string{"delete"},
		Short:   "End interpreters",
		Long: `End interpreters of a sandbox, and the code that they run. The one named "default"
stays; it can be restarted.`,
		Example:           "  ramet context rm 3f2a ctx_77b02937f86644dc3a3ad3ffb9010c70",
		Args:              atLeast(2, "ID CONTEXT"),
		ValidArgsFunction: p.completeContexts,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, id, err := p.connectTo(ctx, args[0])
			if err != nil {
				return err
			}
			return p.each(args[1:], func(name string) error {
				if err := c.DeleteContext(ctx, id, name); err != nil {
					return fmt.Errorf("end the interpreter %s of %s: %w", name, args[0], err)
				}
				_, err := fmt.Fprintln(p.Out, name)
				return err
			})
		}),
	}
}

// completeContexts completes a sandbox and then its interpreters.
func (p *program) completeContexts(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return p.completeIDs(cmd, args, toComplete)
	}
	return p.contextsOf(cmd, args[0]), cobra.ShellCompDirectiveNoFileComp
}

// contextsOf returns the interpreters of a sandbox, for completion.
func (p *program) contextsOf(cmd *cobra.Command, prefix string) []string {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	id, err := resolveID(ctx, c, prefix)
	if err != nil {
		return nil
	}
	list, err := c.Contexts(client.WithoutWake(ctx), id)
	if err != nil {
		return nil
	}
	var out []string
	for _, x := range list {
		out = append(out, x.Id+"\t"+x.Language)
	}
	return out
}

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/progress"
)

func (p *program) templateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "template",
		Aliases: []string{"templates"},
		Short:   "Build, list and remove templates",
		Long: `A template is what sandboxes start from: a root filesystem with a kernel, and a
snapshot of a machine that has booted it. It is named, and known by a hash of all
that it is made from: when nothing of that has changed, nothing is built.`,
		Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.templateBuildCommand(), p.templateLsCommand(), p.templateRmCommand())
	return cmd
}

// groupArgs refuses what is no subcommand of a group of commands.
func groupArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	return nil
}

func (p *program) templateBuildCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build [NAME]",
		Short: "Build a template, unless it is built already",
		Long: `Build a template on the server and show its progress. When nothing has changed
since it was built last, nothing is done. Ctrl-C ends the watching and not the
build; the same command joins it again.`,
		Example: `  ramet template build
  ramet template build default --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("unexpected argument %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: p.completeTemplates,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return p.templateBuild(ctx, args, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the template as JSON at the end")
	return cmd
}

func (p *program) templateBuild(ctx context.Context, args []string, asJSON bool) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	name := p.resolved.Server().Template
	if len(args) > 0 {
		name = args[0]
	}
	d := newDrawer(p.Err)
	t, err := c.BuildTemplate(ctx, name, func(e v1.BuildEvent) {
		out := progress.Event{Step: deref(e.Step), Detail: deref(e.Detail)}
		if e.Fraction != nil {
			out.Fraction = *e.Fraction
		}
		out.Done = e.Done != nil && *e.Done
		d.Event(out)
	})
	d.Close()
	if err != nil {
		return fmt.Errorf("build the template %s: %w", name, err)
	}
	if asJSON {
		return printJSON(p.Out, t)
	}
	_, err = fmt.Fprintf(p.Out, "%s %s (%s)\n", clean(t.Name), clean(t.Hash), byteSize(t.SizeBytes))
	return err
}

func (p *program) templateLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List templates",
		Long: `List the templates that are built on the server. SNAPSHOTS are the numbers of
virtual processors for which a booted machine is kept; others are made when they
are first asked for. ALIASES are other names of a template. What is being built,
or could not be, is listed at the end; 'ramet template build NAME' tries again.`,
		Example:           "  ramet template ls --json | jq -r '.templates[].hash'",
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			list, err := c.TemplateList(ctx)
			if err != nil {
				return fmt.Errorf("list the templates: %w", err)
			}
			if asJSON {
				return printJSON(p.Out, map[string]any{
					"templates": append([]v1.Template{}, list.Templates...), "builds": append([]v1.TemplateState{}, list.Builds...),
				})
			}
			rows := make([][]string, 0, len(list.Templates)+len(list.Builds))
			for _, t := range list.Templates {
				goldens := make([]string, 0, len(t.Goldens))
				for _, n := range t.Goldens {
					goldens = append(goldens, fmt.Sprint(n))
				}
				if len(goldens) == 0 {
					goldens = []string{"-"}
				}
				rows = append(rows, []string{
					clean(t.Name), t.Hash[:min(12, len(t.Hash))], byteSize(t.SizeBytes), strings.Join(goldens, ","),
					age(t.BuiltAt, time.Now()), orDash(strings.Join(deref(t.Aliases), ",")), "built",
				})
			}
			for _, b := range list.Builds {
				rows = append(rows, []string{clean(b.Name), "-", "-", "-", "-", "-", buildState(b)})
			}
			return table(p.Out, []string{"NAME", "HASH", "SIZE", "SNAPSHOTS", "AGE", "ALIASES", "STATE"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// buildState says in a few words how far a build is, or why it failed.
func buildState(b v1.TemplateState) string {
	if b.State == "failed" {
		return "failed: " + clean(deref(b.Error))
	}
	out := "being built"
	if step := deref(b.Step); step != "" {
		out += ": " + clean(step)
	}
	if f := deref(b.Fraction); f > 0 {
		out += fmt.Sprintf(", %.0f %%", 100*f)
	}
	return out
}

func (p *program) templateRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"delete"},
		Short:   "Remove templates that no sandbox stands on",
		Long: `Remove templates, with their snapshots. A template that a sandbox stands on is
refused. The server builds its own template again when it starts.`,
		Example:           "  ramet template rm old",
		Args:              atLeast(1, "NAME"),
		ValidArgsFunction: p.completeTemplates,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			return p.each(args, func(name string) error {
				if err := c.DeleteTemplate(ctx, name); err != nil {
					return fmt.Errorf("remove the template %s: %w", name, err)
				}
				_, err := fmt.Fprintln(p.Out, name)
				return err
			})
		}),
	}
}

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/sandbox"
)

func (p *program) spaceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "space",
		Aliases: []string{"spaces"},
		Short:   "List, resume and delete Spaces",
		Long: `A Space is a frozen sandbox that has ended: what a sandbox becomes that was made
with 'ramet create --persistent', when its idle timeout is over. Resuming makes a
new sandbox of it, with an id of its own, in which all processes go on. That can
be done once: the Space is gone then.`,
		Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.spaceLsCommand(), p.spaceResumeCommand(), p.spaceRmCommand())
	return cmd
}

func (p *program) spaceLsCommand() *cobra.Command {
	var full, quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List Spaces",
		Long: `List Spaces, the newest first. WAS is the sandbox that became the Space. KEPT is
how long one is kept from now on; see 'ramet project set --help'.`,
		Example: `  ramet space ls
  ramet space ls --json | jq -r '.spaces[].id'`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			list := []*v1.Space{}
			for s, err := range c.Spaces(ctx) {
				if err != nil {
					return fmt.Errorf("list the Spaces: %w", err)
				}
				list = append(list, s)
			}
			now := time.Now()
			rows := make([][]string, 0, len(list))
			for _, s := range list {
				if quiet {
					if _, err := fmt.Fprintln(p.Out, s.Id); err != nil {
						return err
					}
				}
				id, was := shortID(s.Id), shortID(s.Sandbox)
				if full {
					id, was = s.Id, s.Sandbox
				}
				rows = append(rows, []string{id, was, s.Template, byteSize(s.SizeBytes), age(s.CreatedAt, now), keptFor(s.ExpiresAt, now), pairs(s.Metadata)})
			}
			switch {
			case quiet:
				return nil
			case asJSON:
				return printJSON(p.Out, map[string]any{"spaces": list})
			}
			return table(p.Out, []string{"ID", "WAS", "TEMPLATE", "SIZE", "AGE", "KEPT", "METADATA"}, rows)
		}),
	}
	addListFlags(cmd, &full, &quiet, &asJSON)
	return cmd
}

func (p *program) spaceResumeCommand() *cobra.Command {
	var timers timerFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume SPACE",
		Short: "Make a sandbox of a Space and print its id",
		Long: `Make a new sandbox of a Space and print its id. All processes go on where they
were frozen, Python with its variables among them. The Space is gone when this has
worked. The sandbox has the settings of the one that became the Space, except for
the times that are given here.`,
		Example: `  id=$(ramet space resume spc_77b0)
  ramet space resume spc_77b0 --idle-timeout 1h --json`,
		Args:              exactly(1, "SPACE"),
		ValidArgsFunction: p.completeSpaces(1),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			var req v1.SpaceResume
			var err error
			if req.IdleTimeoutS, req.MaxLifetimeS, err = timers.values(cmd); err != nil {
				return err
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveSpace(ctx, c, args[0])
			if err != nil {
				return err
			}
			done := p.showWaiting("resuming " + shortID(id))
			sb, err := c.ResumeSpace(ctx, id, req)
			done()
			if err != nil {
				return fmt.Errorf("resume %s: %w", args[0], err)
			}
			return p.showChanged(sb, asJSON)
		}),
	}
	timers.add(cmd)
	for _, name := range []string{"idle-timeout", "max-lifetime"} {
		cmd.Flags().Lookup(name).DefValue = "that of the Space"
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandbox as JSON instead of its id")
	return cmd
}

func (p *program) spaceRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rm SPACE...",
		Aliases:           []string{"delete"},
		Short:             "Delete Spaces",
		Long:              "Delete Spaces, with all that is in them.",
		Example:           "  ramet space rm spc_77b0",
		Args:              atLeast(1, "SPACE"),
		ValidArgsFunction: p.completeSpaces(maxCompletions),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			return p.each(args, func(name string) error {
				id, err := resolveSpace(ctx, c, name)
				if err == nil {
					err = c.DeleteSpace(ctx, id)
				}
				if err != nil {
					return fmt.Errorf("delete the Space %s: %w", name, err)
				}
				_, err = fmt.Fprintln(p.Out, id)
				return err
			})
		}),
	}
}

// resolveSpace returns the id that s is, or is the unique beginning of.
func resolveSpace(ctx context.Context, c *client.Client, s string) (string, error) {
	if id, err := sandbox.ParsePublicSnapshotID(s, sandbox.UseSpace); err == nil {
		return sandbox.Snapshot{ID: id, Use: sandbox.UseSpace}.PublicID(), nil
	}
	if !isDigits(s, "spc_") {
		return "", usageErrorf("%q is not the id of a Space; 'ramet space ls' lists them", s)
	}
	var matches []string
	for space, err := range c.Spaces(ctx) {
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(space.Id, "spc_"+strings.TrimPrefix(s, "spc_")) {
			matches = append(matches, space.Id)
		}
	}
	switch len(matches) {
	case 0:
		return "", fmt.Errorf("no Space has an id that begins with %s; 'ramet space ls' lists them", s)
	case 1:
		return matches[0], nil
	}
	return "", fmt.Errorf("%d Spaces have ids that begin with %s: %s", len(matches), s, someOf(matches, 3))
}

// completeSpaces completes the ids of up to n Spaces.
func (p *program) completeSpaces(n int) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, ctx, cancel, err := p.completing(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer cancel()
		var out []string
		for s, err := range c.Spaces(ctx) {
			if err != nil || len(out) == maxCompletions {
				break
			}
			if id := shortID(s.Id); strings.HasPrefix(id, toComplete) {
				out = append(out, fmt.Sprintf("%s\twas %s, %s old", id, shortID(s.Sandbox), age(s.CreatedAt, time.Now())))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

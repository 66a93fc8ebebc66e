package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/config"
)

// addProjectFlag adds --project.
func (p *program) addProjectFlag(cmd *cobra.Command, to *string, help string) {
	cmd.Flags().StringVar(to, "project", "", help)
	nameValue(cmd.Flags(), "project", "NAME")
	cmd.RegisterFlagCompletionFunc("project", p.completeProjects)
}

func (p *program) projectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "project",
		Aliases: []string{"projects"},
		Short:   "Make, list and limit projects",
		Long: `A project owns sandboxes and API keys. A key sees only what is its project's. How
much of the server a project may use at one time is its quota; what it does not
say is the server's default (the settings max_sandboxes, max_memory_mb and
max_disk_mb). A project also says for how long hibernated sandboxes, Spaces and
checkpoints are kept. Only the server's own key makes projects and changes them.`,
		Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.projectSetCommand(), p.projectLsCommand(), p.projectGetCommand())
	return cmd
}

func (p *program) projectSetCommand() *cobra.Command {
	var asJSON bool
	limits := map[string]*string{
		"max-sandboxes": new(string), "max-memory": new(string), "max-disk": new(string),
		"retain-hibernated": new(string), "retain-spaces": new(string), "retain-checkpoints": new(string),
	}
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a project or change its quota and retention",
		Long: `Make a project, or change the quota and the retention of one. What is not given
stays as it was. A limit is a number, "default" for the server's, or "none". What
the project has already stays, also when that is more.

A retention is a time such as 12h or 30d, "default" (or 0) for the server's, or
"never" (or -1): then nothing is deleted by itself.`,
		Example: `  ramet project set team-a
  ramet project set team-a --max-sandboxes 20 --max-memory 32768
  ramet project set team-a --max-disk default
  ramet project set team-a --retain-hibernated 7d --retain-checkpoints never`,
		Args:              exactly(1, "NAME"),
		ValidArgsFunction: p.completeProjects,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			var set v1.ProjectSet
			for flag, to := range map[string]**int{"max-sandboxes": &set.MaxSandboxes, "max-memory": &set.MaxMemoryMb, "max-disk": &set.MaxDiskMb} {
				if !cmd.Flags().Changed(flag) {
					continue
				}
				n, err := parseLimit(*limits[flag])
				if err != nil {
					return usageErrorf("--%s %w", flag, err)
				}
				*to = &n
			}
			for flag, to := range map[string]**int64{
				"retain-hibernated": &set.RetainHibernatedS, "retain-spaces": &set.RetainSpacesS, "retain-checkpoints": &set.RetainCheckpointsS,
			} {
				if !cmd.Flags().Changed(flag) {
					continue
				}
				n, err := parseRetention(*limits[flag])
				if err != nil {
					return usageErrorf("--%s %w", flag, err)
				}
				*to = &n
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			project, err := c.SetProject(ctx, args[0], set)
			if err != nil {
				return fmt.Errorf("set the project %s: %w", args[0], err)
			}
			return p.showProject(project, asJSON)
		}),
	}
	for flag, help := range map[string]string{
		"max-sandboxes": "sandboxes at one time", "max-memory": "memory of all of them together, in MB", "max-disk": "disk of all of them together, in MB",
	} {
		cmd.Flags().StringVar(limits[flag], flag, "", help+": a number, default or none")
		nameValue(cmd.Flags(), flag, "N")
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions([]string{"default", "none"}, cobra.ShellCompDirectiveNoFileComp))
	}
	for flag, help := range map[string]string{
		"retain-hibernated": "sandboxes that hibernate", "retain-spaces": "Spaces", "retain-checkpoints": "checkpoints",
	} {
		cmd.Flags().StringVar(limits[flag], flag, "", "how long "+help+" are kept: a time such as 30d, default or never")
		nameValue(cmd.Flags(), flag, "TIME")
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions([]string{"default", "never"}, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// parseRetention reads a retention as the API has it, in seconds.
func parseRetention(s string) (int64, error) {
	switch s {
	case "default", "0":
		return 0, nil
	case "none", "-1":
		return -1, nil
	}
	d, err := config.ParseTime(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w, or default", err)
	case d == 0: // never
		return -1, nil
	}
	return int64(d / time.Second), nil
}

// parseLimit reads a limit as the API has it.
func parseLimit(s string) (int, error) {
	switch s {
	case "default":
		return 0, nil
	case "none":
		return -1, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("is %q, but must be a number above 0, default or none", s)
	}
	return n, nil
}

func (p *program) projectLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List projects with what they use and may use",
		Long:    "List the projects that the key may see, with what they use of their quotas.",
		Example: `  ramet project ls
  ramet project ls --json | jq -r '.projects[].name'`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			list, err := c.Projects(ctx)
			if err != nil {
				return fmt.Errorf("list the projects: %w", err)
			}
			if asJSON {
				return printJSON(p.Out, map[string]any{"projects": append([]v1.Project{}, list...)})
			}
			rows := make([][]string, 0, len(list))
			for _, r := range list {
				rows = append(rows, []string{
					r.Name, ofLimit(r.Sandboxes, r.MaxSandboxes), ofLimit(r.MemoryMb, r.MaxMemoryMb), ofLimit(r.DiskMb, r.MaxDiskMb), age(r.CreatedAt, time.Now()),
				})
			}
			return table(p.Out, []string{"NAME", "SANDBOXES", "MEMORY MB", "DISK MB", "AGE"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func ofLimit(used, limit int) string {
	if limit == 0 {
		return strconv.Itoa(used)
	}
	return fmt.Sprintf("%d/%d", used, limit)
}

func (p *program) projectGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "get NAME",
		Short:             "Show a project",
		Long:              "Show a project: what it uses, and what it may use.",
		Example:           "  ramet project get team-a",
		Args:              exactly(1, "NAME"),
		ValidArgsFunction: p.completeProjects,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			project, err := c.Project(ctx, args[0])
			if err != nil {
				return err
			}
			return p.showProject(project, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (p *program) showProject(r *v1.Project, asJSON bool) error {
	if asJSON {
		return printJSON(p.Out, r)
	}
	row := func(used, limit int, unit string) string {
		if limit == 0 {
			return fmt.Sprintf("%d%s, no limit", used, unit)
		}
		return fmt.Sprintf("%d%s of %d%s", used, unit, limit, unit)
	}
	return p.printFields([][2]string{
		{"Project", r.Name},
		{"Sandboxes", row(r.Sandboxes, r.MaxSandboxes, "")},
		{"Memory", row(r.MemoryMb, r.MaxMemoryMb, " MB")},
		{"Disk", row(r.DiskMb, r.MaxDiskMb, " MB")},
		{"Hibernated", keptTime(r.RetainHibernatedS)},
		{"Spaces", keptTime(r.RetainSpacesS)},
		{"Checkpoints", keptTime(r.RetainCheckpointsS)},
		{"Created", fmt.Sprintf("%s (%s ago)", r.CreatedAt.Local().Format(time.DateTime), age(r.CreatedAt, time.Now()))},
	})
}

// keptTime formats a retention.
func keptTime(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case seconds == 0:
		return "kept for ever"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("kept for %d days", int(d.Hours())/24)
	}
	return "kept for " + d.String()
}

func (p *program) completeProjects(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.Projects(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, r := range list {
		out = append(out, r.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

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

func (p *program) checkpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "checkpoint",
		Aliases: []string{"checkpoints", "ckp"},
		Short:   "Keep states of sandboxes, to go back to or to start from",
		Long: `A checkpoint is what a sandbox was at one instant: its memory, processes and disk,
or its disk only. A sandbox can go back to one ('restore'), and new sandboxes can
start from one ('ramet create --checkpoint'), also when the sandbox is long gone.

A checkpoint is named by any unique beginning of its id, or by its name: where a
sandbox is given too by NAME alone, else by ID/NAME with the id of the sandbox.`,
		Args: groupArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.checkpointCreateCommand(), p.checkpointLsCommand(), p.checkpointGetCommand(),
		p.checkpointRestoreCommand(), p.checkpointRmCommand())
	return cmd
}

func (p *program) checkpointCreateCommand() *cobra.Command {
	var name string
	var disk, deleteOldest, asJSON bool
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Make a checkpoint of a running sandbox and print its id",
		Long: `Make a checkpoint of a running sandbox and print its id. The sandbox stands still
for milliseconds and goes on. It returns when the checkpoint is whole and on the
disk. With --disk it holds the disk only: what starts from it boots afresh.

A sandbox can have 10 checkpoints with memory and 100 of its disk only. One more
is refused, or takes the place of the oldest with --delete-oldest.`,
		Example: `  ramet checkpoint create 3f2a --name before-deploy
  ckp=$(ramet checkpoint create 3f2a --disk --delete-oldest)`,
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
			kind := string(sandbox.SnapshotFull)
			if disk {
				kind = string(sandbox.SnapshotDisk)
			}
			done := p.showWaiting("saving " + shortID(id))
			ckp, err := c.CreateCheckpoint(ctx, id, v1.CheckpointCreate{Name: ptr(name), Kind: &kind, DeleteOldest: ptr(deleteOldest)})
			done()
			if err != nil {
				return fmt.Errorf("make a checkpoint of %s: %w", args[0], err)
			}
			if asJSON {
				return printJSON(p.Out, ckp)
			}
			if isTerminal(p.Err) && ckp.TimingsMs != nil {
				fmt.Fprintf(p.Err, "saved %s after %s; the sandbox stood still for %s%s\n", byteSize(ckp.SizeBytes),
					milliseconds((*ckp.TimingsMs)["total"]), milliseconds(deref(ckp.PausedMs)), timings(ckp.TimingsMs))
			}
			_, err = fmt.Fprintln(p.Out, ckp.Id)
			return err
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "name it, to find it by")
	cmd.Flags().BoolVar(&disk, "disk", false, "the disk only, without memory and processes")
	cmd.Flags().BoolVar(&deleteOldest, "delete-oldest", false, "when there are as many as there may be, delete the oldest")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the checkpoint as JSON instead of its id")
	nameValue(cmd.Flags(), "name", "NAME")
	cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return cmd
}

func (p *program) checkpointLsCommand() *cobra.Command {
	var full, quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [ID]",
		Aliases: []string{"list"},
		Short:   "List checkpoints",
		Long: `List the checkpoints of a sandbox, or all, the newest first. KEPT is how long one
is kept from now on; see 'ramet project set --help'.`,
		Example: `  ramet checkpoint ls
  ramet checkpoint ls 3f2a --json | jq -r '.checkpoints[].name'
  ramet checkpoint rm $(ramet checkpoint ls 3f2a -q)`,
		Args:              atMostOne,
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			id := ""
			if len(args) > 0 {
				if id, err = resolveID(ctx, c, args[0]); err != nil {
					return err
				}
			}
			list := []*v1.Checkpoint{}
			for ckp, err := range c.Checkpoints(ctx, id) {
				if err != nil {
					return fmt.Errorf("list the checkpoints: %w", err)
				}
				list = append(list, ckp)
			}
			switch {
			case asJSON:
				return printJSON(p.Out, map[string]any{"checkpoints": list})
			case quiet:
				for _, ckp := range list {
					if _, err := fmt.Fprintln(p.Out, ckp.Id); err != nil {
						return err
					}
				}
				return nil
			}
			return p.checkpointTable(list, full)
		}),
	}
	addListFlags(cmd, &full, &quiet, &asJSON)
	return cmd
}

// addListFlags adds the flags of a list that has ids.
func addListFlags(cmd *cobra.Command, full, quiet, asJSON *bool) {
	cmd.Flags().BoolVar(full, "full", false, "show whole ids")
	cmd.Flags().BoolVarP(quiet, "quiet", "q", false, "print only ids, whole ones, one a line")
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("quiet", "json")
}

func (p *program) checkpointTable(list []*v1.Checkpoint, full bool) error {
	now := time.Now()
	rows := make([][]string, 0, len(list))
	for _, ckp := range list {
		id, of := shortID(ckp.Id), shortID(ckp.Sandbox)
		if full {
			id, of = ckp.Id, ckp.Sandbox
		}
		rows = append(rows, []string{id, orDash(ckp.Name), of, kindOf(ckp), byteSize(ckp.SizeBytes), age(ckp.CreatedAt, now), keptFor(ckp.ExpiresAt, now)})
	}
	return table(p.Out, []string{"ID", "NAME", "SANDBOX", "KIND", "SIZE", "AGE", "KEPT"}, rows)
}

// kindOf says what a checkpoint holds, and its status unless it can be used.
func kindOf(ckp *v1.Checkpoint) string {
	if ckp.Status != string(sandbox.SnapshotReady) {
		return ckp.Kind + " (" + ckp.Status + ")"
	}
	return ckp.Kind
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// keptFor says for how long something is still kept.
func keptFor(until *time.Time, now time.Time) string {
	if until == nil {
		return "for ever"
	}
	return age(now, *until)
}

func (p *program) checkpointGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get CHECKPOINT",
		Short: "Show a checkpoint",
		Long:  "Show a checkpoint, and the settings that a sandbox has which starts from it.",
		Example: `  ramet checkpoint get ckp_77b0
  ramet checkpoint get 3f2a/before-deploy --json`,
		Args:              exactly(1, "CHECKPOINT"),
		ValidArgsFunction: p.completeOneCheckpoint,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveCheckpoint(ctx, c, "", args[0])
			if err != nil {
				return err
			}
			ckp, err := c.Checkpoint(ctx, id)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.Out, ckp)
			}
			kept := "for ever"
			if ckp.ExpiresAt != nil {
				kept = "until " + ckp.ExpiresAt.Local().Format(time.DateTime)
			}
			return p.printFields([][2]string{
				{"Id", ckp.Id},
				{"Name", ckp.Name},
				{"Of", ckp.Sandbox},
				{"Kind", kindOf(ckp)},
				{"Template", ckp.Template + " " + ckp.TemplateHash[:min(12, len(ckp.TemplateHash))]},
				{"Machine", fmt.Sprintf("%d vCPUs, %s of memory, %s of disk", ckp.Vcpus, megabytes(ckp.MemoryMb), megabytes(ckp.DiskMb))},
				{"Metadata", strings.TrimPrefix(pairs(ckp.Metadata), "-")},
				{"Size", byteSize(ckp.SizeBytes)},
				{"Created", fmt.Sprintf("%s (%s ago)", ckp.CreatedAt.Local().Format(time.DateTime), age(ckp.CreatedAt, time.Now()))},
				{"Kept", kept},
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (p *program) checkpointRestoreCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore ID CHECKPOINT",
		Short: "Take a sandbox back to one of its checkpoints",
		Long: `Make the memory and files of a sandbox what they were at one of its checkpoints.
What there was since is gone, and what runs in it ends. Its id and settings stay.
The checkpoint is verified first: when it cannot be restored, the sandbox goes on
as it is.`,
		Example: `  ramet checkpoint restore 3f2a before-deploy
  ramet checkpoint restore 3f2a ckp_77b0 --json`,
		Args: exactly(2, "ID and CHECKPOINT"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveID(ctx, c, args[0])
			if err != nil {
				return err
			}
			ckp, err := resolveCheckpoint(ctx, c, id, args[1])
			if err != nil {
				return err
			}
			done := p.showWaiting("restoring " + shortID(id))
			sb, err := c.Restore(ctx, id, ckp)
			done()
			if err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			return p.showChanged(sb, asJSON)
		}),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return p.completeIDs(cmd, args, toComplete)
			case 1:
				return p.checkpointCompletions(cmd, args[0], toComplete), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandbox as JSON instead of its id")
	return cmd
}

func (p *program) checkpointRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "rm CHECKPOINT...",
		Aliases: []string{"delete"},
		Short:   "Delete checkpoints",
		Long:    "Delete checkpoints. What was started from them goes on.",
		Example: `  ramet checkpoint rm ckp_77b0 3f2a/before-deploy
  ramet checkpoint rm $(ramet checkpoint ls 3f2a -q)`,
		Args: atLeast(1, "CHECKPOINT"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			return p.each(args, func(name string) error {
				id, err := resolveCheckpoint(ctx, c, "", name)
				if err == nil {
					err = c.DeleteCheckpoint(ctx, id)
				}
				if err != nil {
					return fmt.Errorf("delete the checkpoint %s: %w", name, err)
				}
				_, err = fmt.Fprintln(p.Out, id)
				return err
			})
		}),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return p.checkpointCompletions(cmd, "", toComplete), cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// resolveCheckpoint returns the id of the checkpoint that s names: by its id or the
// unique beginning of it, or by its name. Of which sandbox the name is says sandboxID, or
// s itself as ID/NAME.
func resolveCheckpoint(ctx context.Context, c *client.Client, sandboxID, s string) (string, error) {
	if id, err := sandbox.ParsePublicSnapshotID(s, sandbox.UseCheckpoint); err == nil {
		return sandbox.Snapshot{ID: id, Use: sandbox.UseCheckpoint}.PublicID(), nil
	}
	of, name, named := strings.Cut(s, "/")
	switch {
	case sandboxID != "":
		of, name, named = sandboxID, s, true
	case named && (!isDigits(of, "sbx_") || name == ""), !named && !isDigits(s, "ckp_"):
		return "", usageErrorf("%q names no checkpoint: give its id, or ID/NAME; 'ramet checkpoint ls' lists them", s)
	}
	var byName, byID []string
	for ckp, err := range c.Checkpoints(ctx, sandboxID) {
		if err != nil {
			return "", err
		}
		if named && ckp.Name == name && strings.HasPrefix(ckp.Sandbox, "sbx_"+strings.TrimPrefix(of, "sbx_")) {
			byName = append(byName, ckp.Id)
		}
		if isDigits(s, "ckp_") && strings.HasPrefix(ckp.Id, "ckp_"+strings.TrimPrefix(s, "ckp_")) {
			byID = append(byID, ckp.Id)
		}
	}
	matches := byName
	if len(matches) == 0 {
		matches = byID
	}
	switch len(matches) {
	case 0:
		return "", fmt.Errorf("there is no checkpoint %s; 'ramet checkpoint ls' lists them", s)
	case 1:
		return matches[0], nil
	}
	return "", fmt.Errorf("%d checkpoints are named by %s: %s", len(matches), s, someOf(matches, 3))
}

// isDigits says whether s can be the beginning of an id with the prefix, which may be left out.
func isDigits(s, prefix string) bool {
	digits := strings.TrimPrefix(s, prefix)
	return digits != "" && len(digits) <= 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

// atMostOne accepts one argument or none.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("unexpected argument %q", args[1])
	}
	return nil
}

// checkpointCompletions lists the ids of checkpoints, and with a sandbox also their names.
func (p *program) checkpointCompletions(cmd *cobra.Command, of, toComplete string) []string {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	if of != "" {
		if of, err = resolveID(ctx, c, of); err != nil {
			return nil
		}
	}
	var out []string
	now := time.Now()
	for ckp, err := range c.Checkpoints(ctx, of) {
		if err != nil || len(out) >= maxCompletions {
			break
		}
		what := fmt.Sprintf("%s of %s, %s old", ckp.Kind, shortID(ckp.Sandbox), age(ckp.CreatedAt, now))
		names := []string{shortID(ckp.Id)}
		if named := ckp.Name != "" && clean(ckp.Name) == ckp.Name; named && of != "" {
			names = append(names, ckp.Name)
		} else if named {
			names = append(names, shortID(ckp.Sandbox)+"/"+ckp.Name)
		}
		for _, name := range names {
			if strings.HasPrefix(name, toComplete) {
				out = append(out, name+"\t"+what)
			}
		}
	}
	return out
}

func (p *program) completeOneCheckpoint(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.checkpointCompletions(cmd, "", toComplete), cobra.ShellCompDirectiveNoFileComp
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

type lsOptions struct {
	all      bool
	full     bool
	quiet    bool
	json     bool
	limit    int
	status   string
	template string
	metadata []string
}

func (p *program) lsCommand() *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes",
		Long: `List sandboxes, the newest first. Stopped ones are left out unless --all or
--status asks for them. Metadata are the labels of a sandbox: filters can be given
together, and all must match. Ids are shortened; every command takes them so.`,
		Example: `  ramet ls
  ramet ls --metadata job=42 --metadata user=ann
  ramet ls --status running --template default --limit 20
  ramet rm $(ramet ls -q --status failed)
  ramet ls --json | jq -r '.sandboxes[].id'`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return p.ls(ctx, o)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "also stopped sandboxes")
	f.BoolVar(&o.full, "full", false, "show whole ids")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only ids, whole ones, one a line")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.StringVar(&o.status, "status", "", "only this status: running, failed, ...")
	f.StringVar(&o.template, "template", "", "only sandboxes of this template")
	f.IntVar(&o.limit, "limit", 0, "only the newest so many; 0 is all")
	f.StringArrayVar(&o.metadata, "metadata", nil, "only sandboxes with this K=V (repeatable: all of them)")
	nameValue(f, "status", "WORD")
	nameValue(f, "template", "NAME")
	nameValue(f, "limit", "N")
	nameValue(f, "metadata", "K=V")
	cmd.MarkFlagsMutuallyExclusive("quiet", "json")
	cmd.MarkFlagsMutuallyExclusive("all", "status")
	cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{
		"creating", "running", "hibernating", "hibernated",
		"waking", "stopping", "stopped", "failed",
	}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("template", p.completeTemplates)
	cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	cmd.RegisterFlagCompletionFunc("metadata", cobra.NoFileCompletions)
	return cmd
}

func (p *program) ls(ctx context.Context, o lsOptions) error {
	if _, err := parsePairs("metadata", o.metadata); err != nil {
		return err
	}
	if o.limit < 0 {
		return usageErrorf("--limit %d: must not be negative", o.limit)
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	filter := client.ListFilter{Status: o.status, Template: o.template, Metadata: o.metadata}
	if o.all {
		filter.Status = "any"
	}
	list := []*v1.Sandbox{}
	for sb, err := range c.Sandboxes(ctx, filter) {
		if err != nil {
			return fmt.Errorf("list the sandboxes: %w", err)
		}
		list = append(list, sb)
		if len(list) == o.limit {
			break
		}
	}
	switch {
	case o.json:
		return printJSON(p.Out, map[string]any{"sandboxes": list})
	case o.quiet:
		for _, sb := range list {
			if _, err := fmt.Fprintln(p.Out, sb.Id); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 && isTerminal(p.Out) {
		fmt.Fprintln(p.Err, "No sandboxes. 'ramet create' makes one.")
		return nil
	}
	now := time.Now()
	rows := make([][]string, 0, len(list))
	for _, sb := range list {
		id := shortID(sb.Id)
		if o.full {
			id = sb.Id
		}
		rows = append(rows, []string{
			id, shownStatus(sb), sb.Template, fmt.Sprint(sb.Vcpus), megabytes(sb.MemoryMb),
			megabytes(sb.DiskMb), age(sb.CreatedAt, now), pairs(sb.Metadata),
		})
	}
	return table(p.Out, []string{"ID", "STATUS", "TEMPLATE", "VCPUS", "MEMORY", "DISK", "AGE", "METADATA"}, rows)
}

// shownStatus adds to a status what a person should know about it.
func shownStatus(sb *v1.Sandbox) string {
	if sb.UnresponsiveSince != nil {
		return sb.Status + " (silent)"
	}
	return sb.Status
}

func pairs(m map[string]string) string {
	if len(m) == 0 {
		return "-"
	}
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}

func (p *program) getCommand() *cobra.Command {
	var asJSON, metrics bool
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show one sandbox",
		Long: `Show one sandbox: its state and shape, and with --metrics what it uses, as it
sees it itself and as it costs the host. The environment is not shown: it may
hold secrets.`,
		Example: `  ramet get 3f2a
  ramet get 3f2a --metrics
  ramet get 3f2a --json | jq -r .status`,
		Args: exactly(1, "ID"),
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return p.get(ctx, args[0], asJSON, metrics)
		}),
		ValidArgsFunction: p.completeOneID,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&metrics, "metrics", false, "also what it uses")
	return cmd
}

func (p *program) get(ctx context.Context, name string, asJSON, metrics bool) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	id, err := resolveID(ctx, c, name)
	if err != nil {
		return err
	}
	sb, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	var m *v1.Metrics
	if metrics {
		if m, err = c.Metrics(ctx, id); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(p.Out, struct {
			*v1.Sandbox
			Metrics *v1.Metrics `json:"metrics,omitempty"`
		}{sb, m})
	}
	silent := ""
	if sb.UnresponsiveSince != nil {
		silent = age(*sb.UnresponsiveSince, time.Now()) + " (its machine runs)"
	}
	rows := [][2]string{
		{"Id", sb.Id},
		{"Status", sb.Status},
		{"Reason", deref(sb.FailReason)},
		{"No answer for", silent},
		{"Template", sb.Template + " " + sb.TemplateHash[:min(12, len(sb.TemplateHash))]},
		{"Machine", fmt.Sprintf("%d vCPUs, %s of memory, %s of disk", sb.Vcpus, megabytes(sb.MemoryMb), megabytes(sb.DiskMb))},
		{"Isolation", sb.Isolation},
		{"Network out", egressText(sb)},
		{"Came of", cameOf(sb)},
		{"Merged into", deref(sb.MergedInto)},
		{"Memory lost", deref(sb.BootNote)},
		{"Metadata", strings.TrimPrefix(pairs(sb.Metadata), "-")},
		{"By itself", stopTimes(sb)},
		{"Ends", ends(sb)},
		{"Node", sb.Node + ", region " + sb.Region},
		{"Created", fmt.Sprintf("%s (%s ago)", sb.CreatedAt.Local().Format(time.DateTime), age(sb.CreatedAt, time.Now()))},
	}
	if m != nil {
		rows = append(rows, metricRows(m)...)
	}
	return p.printFields(rows)
}

// cameOf says what a sandbox was made of, or nothing for one of a template.
func cameOf(sb *v1.Sandbox) string {
	parent := deref(sb.Parent)
	switch {
	case sb.Checkpoint != nil:
		return fmt.Sprintf("the checkpoint %s of %s", *sb.Checkpoint, orDash(parent))
	case sb.Space != nil:
		return fmt.Sprintf("the Space %s of %s", *sb.Space, orDash(parent))
	case parent != "":
		return "a fork of " + parent
	}
	return ""
}

// stopTimes says what happens to a sandbox by itself, or nothing when nothing does.
func stopTimes(sb *v1.Sandbox) string {
	if sb.Status == "stopped" || sb.Status == "failed" {
		return ""
	}
	var what []string
	if sb.IdleTimeoutS != 0 {
		then := "hibernates"
		if sb.Persistent {
			then = "becomes a Space"
		}
		what = append(what, fmt.Sprintf("%s %s without a call", then, seconds(sb.IdleTimeoutS)))
	}
	if sb.MaxLifetimeS != 0 {
		what = append(what, fmt.Sprintf("ends %s of life", seconds(sb.MaxLifetimeS)))
	}
	if text := deadline(sb); text != "" {
		what = append(what, text)
	}
	return strings.Join(what, ", ")
}

// ends says when a sandbox ends if nothing changes, or nothing when it does not.
func ends(sb *v1.Sandbox) string {
	if sb.ExpiresAt == nil || sb.Status == "stopped" {
		return ""
	}
	return fmt.Sprintf("%s (in %s)", sb.ExpiresAt.Local().Format(time.DateTime), age(time.Now(), *sb.ExpiresAt))
}

func metricRows(m *v1.Metrics) [][2]string {
	return [][2]string{
		{"Memory used", fmt.Sprintf("%s of %s", byteSize(m.MemoryTotalBytes-m.MemoryAvailableBytes), byteSize(m.MemoryTotalBytes))},
		{"Disk used", fmt.Sprintf("%s of %s", byteSize(m.DiskTotalBytes-m.DiskFreeBytes), byteSize(m.DiskTotalBytes))},
		{"Load", fmt.Sprintf("%.2f, %d processes, up %s", m.Load1, m.Processes, age(time.Now().Add(-time.Duration(m.UptimeS*1e9)), time.Now()))},
		{"On the host", fmt.Sprintf("%s of memory (%s its own), %s of disk", byteSize(m.Host.PssBytes), byteSize(m.Host.OwnPages*4096), byteSize(m.Host.DiskBytes))},
	}
}

func (p *program) rmCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"delete"},
		Short:   "Remove sandboxes",
		Long: `Remove sandboxes, whatever they are doing, with all that is in them. It returns
when what they used is free again. Ids that name nothing are errors (unless
--force); the others are removed all the same.`,
		Example: `  ramet rm 3f2a 77b0
  ramet rm $(ramet ls -q)
  ramet rm --force $(ramet ls -q)      # nothing to remove is no error`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !force {
				return errors.New("missing argument: ID")
			}
			return nil
		},
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return p.rm(ctx, args, force)
		}),
		ValidArgsFunction: p.completeIDs,
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "no error for ids that name nothing, or for none at all")
	return cmd
}

func (p *program) rm(ctx context.Context, names []string, force bool) error {
	if len(names) == 0 {
		return nil
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	return p.each(names, func(name string) error {
		id, err := resolveID(ctx, c, name)
		if err == nil {
			err = c.Delete(ctx, id)
		}
		if err == nil {
			_, err = fmt.Fprintln(p.Out, id)
			return err
		}
		var gone *noSuchSandbox
		var api *client.Error
		if force && (errors.As(err, &gone) || (errors.As(err, &api) && api.Code == "sandbox_not_found")) {
			return nil
		}
		return fmt.Errorf("remove %s: %w", name, err)
	})
}

// each calls f for every name, also after failures, and returns the last error
// after printing the others. Nothing is tried further once no server answers.
func (p *program) each(names []string, f func(string) error) error {
	var last error
	for _, name := range names {
		err := f(name)
		if err == nil {
			continue
		}
		var gone *client.UnreachableError
		if errors.As(err, &gone) || errors.Is(err, context.Canceled) {
			return err
		}
		if last != nil {
			fmt.Fprintf(p.Err, "ramet: %s\n", clean(p.sentence(last)))
		}
		last = err
	}
	return last
}

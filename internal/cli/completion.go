package cli

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
)

// completeTimeout bounds what a Tab costs.
const completeTimeout = 2 * time.Second

// maxCompletions bounds what a Tab shows.
const maxCompletions = 200

func (p *program) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script for completion in your shell",
		Long: `Print a script that completes commands, flags, ids, templates, languages and
paths (also those in a sandbox) in your shell.

  bash:  source <(ramet completion bash)         in ~/.bashrc
  zsh:   source <(ramet completion zsh)          in ~/.zshrc
  fish:  ramet completion fish | source          in ~/.config/fish/config.fish`,
		Example:   "  ramet completion bash > /etc/bash_completion.d/ramet",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      exactly(1, "bash, zsh or fish"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(p.Out, true)
			case "zsh":
				return root.GenZshCompletion(p.Out)
			case "fish":
				return root.GenFishCompletion(p.Out, true)
			}
			return usageErrorf("there is no completion for %q, but for bash, zsh and fish", args[0])
		},
	}
	return cmd
}

// completing returns a client for a Tab, and a context that ends soon.
func (p *program) completing(cmd *cobra.Command) (*client.Client, context.Context, context.CancelFunc, error) {
	p.command = cmd
	c, err := p.connect()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	return c, ctx, cancel, nil
}

// idCompletions lists the ids that begin as toComplete does.
func (p *program) idCompletions(cmd *cobra.Command, toComplete, suffix string) []string {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil
	}
	defer cancel()
	var out []string
	for sb, err := range c.Sandboxes(ctx, client.ListFilter{}) {
		if err != nil || len(out) == maxCompletions {
			break
		}
		id := shortID(sb.Id)
		if !strings.HasPrefix(toComplete, "sbx") && toComplete != "" {
			id = strings.TrimPrefix(id, "sbx_")
		}
		if strings.HasPrefix(id, toComplete) {
			out = append(out, fmt.Sprintf("%s%s\t%s, %s old", id, suffix, sb.Status, age(sb.CreatedAt, time.Now())))
		}
	}
	return out
}

func (p *program) completeIDs(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return p.idCompletions(cmd, toComplete, ""), cobra.ShellCompDirectiveNoFileComp
}

func (p *program) completeOneID(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.completeIDs(cmd, args, toComplete)
}

func (p *program) completeTemplates(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.Templates(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, t := range list {
		out = append(append(out, t.Name), deref(t.Aliases)...)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) completeKeys(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.Keys(ctx, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, k := range list {
		out = append(out, k.Id+"\t"+k.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeCopy completes the arguments of cp: local files, ids, and the paths
// in a sandbox after "ID:".
func (p *program) completeCopy(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	id, remote, found := strings.Cut(toComplete, ":")
	if !found || strings.ContainsAny(id, "/.") {
		firstIsRemote := false
		if len(args) == 1 {
			end, err := parseEnd(args[0])
			firstIsRemote = err == nil && end.remote()
		}
		if firstIsRemote || strings.ContainsAny(toComplete, "/.") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ids := p.idCompletions(cmd, toComplete, ":")
		if len(ids) == 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return ids, cobra.ShellCompDirectiveNoSpace
	}
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	full, err := resolveID(ctx, c, id)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dir, prefix := path.Split(remote)
	listed := dir
	if listed == "" {
		listed = "."
	}
	files, err := c.ListFiles(ctx, full, listed)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, f := range files {
		name := path.Base(f.Path)
		if !strings.HasPrefix(name, prefix) || clean(name) != name || len(out) == maxCompletions {
			continue
		}
		if f.Type == typeDirectory {
			name += "/"
		}
		out = append(out, id+":"+dir+name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

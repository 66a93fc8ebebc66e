package cli

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/sandbox"
)

// variable is an environment variable of a client.
type variable struct{ name, value string }

// clientEnv are the clients that 'ramet env' knows.
var clientEnv = map[string]func(server, key, domain string) []variable{
	"ramet": func(server, key, _ string) []variable {
		return []variable{{"RAMET_URL", server}, {"RAMET_API_KEY", key}}
	},
	"podflare": func(server, key, _ string) []variable {
		return []variable{{"PODFLARE_HOSTD_URL", server}, {"PODFLARE_API_KEY", key}}
	},
	"e2b": e2bEnv,
}

// e2bEnv names the sandboxes by headers where the server is reached by an address, and else
// by the names of hosts, for which a wildcard name and certificate are needed.
func e2bEnv(server, key, domain string) []variable {
	list := []variable{{"E2B_API_URL", server}}
	u, err := url.Parse(server)
	if err == nil {
		if _, aerr := netip.ParseAddr(u.Hostname()); aerr == nil || u.Hostname() == "localhost" {
			list = append(list, variable{"E2B_SANDBOX_URL", server})
		}
	}
	if domain != "" {
		list = append(list, variable{"E2B_DOMAIN", domain})
	}
	if key == "" {
		key = "e2b_00" // any does, but for its shape
	}
	return append(list, variable{"E2B_API_KEY", sandbox.HexKey(key)})
}

func (p *program) envCommand() *cobra.Command {
	var asJSON bool
	var name string
	names := []string{"e2b", "podflare", "ramet"}
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that let a client library use this server",
		Long: `Print export lines for a shell, with which a client library uses the server that
commands talk to, with their key: that of E2B, of Podflare, or our own.

The key is shown. Programs elsewhere better get one of their own, from
'ramet keys create'; E2B's libraries take the shape of --format e2b only.`,
		Example: `  eval "$(ramet env --client e2b)"
  ramet env --client podflare
  ramet env --client e2b --json | jq -r .E2B_API_URL`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			make, ok := clientEnv[name]
			if !ok {
				return usageErrorf("--client is %q, but must be one of: %s", name, strings.Join(names, ", "))
			}
			list, err := p.env(ctx, make)
			if err != nil {
				return err
			}
			if asJSON {
				values := map[string]string{}
				for _, v := range list {
					values[v.name] = v.value
				}
				return printJSON(p.Out, values)
			}
			for _, v := range list {
				if _, err := fmt.Fprintf(p.Out, "export %s=%s\n", v.name, shellQuote(v.value)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&name, "client", "ramet", "whose library: e2b, podflare or ramet")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	nameValue(cmd.Flags(), "client", "NAME")
	cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p *program) env(ctx context.Context, make func(server, key, domain string) []variable) ([]variable, error) {
	c, err := p.connect()
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the server what it is: %w", err)
	}
	key := p.resolved.Client().APIKey
	if key == "" && info.Auth {
		key = p.localKey(p.resolved.Client())
	}
	domain := ""
	if info.PreviewDomain != nil {
		domain = *info.PreviewDomain
	}
	return make(c.URL(), key, domain), nil
}

// shellQuote writes a value as one word of a shell.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:/@%+=", r)
	}
	if s != "" && !slices.ContainsFunc([]rune(s), func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// settingJSON is one entry of 'config show --json'.
type settingJSON struct {
	Key         string `json:"key"`
	Value       string `json:"value"`
	Source      string `json:"source"`
	Environment string `json:"environment"`
	Flag        string `json:"flag,omitempty"`
}

func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the settings and where each one comes from",
		Long: `Settings come from, the strongest first:

  1. a flag                       --listen 127.0.0.1:8080
  2. an environment variable      RAMET_LISTEN=127.0.0.1:8080
  3. ~/.config/ramet/config.yaml  listen: 127.0.0.1:8080
  4. /etc/ramet/config.yaml
  5. the default

--config FILE, or RAMET_CONFIG, is read instead of the two config files. The API
key has no flag, because every user of a machine sees the others' command lines.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the settings and where each one comes from",
		Long: `Show every setting as it is in force here, and where its value comes from.
Secrets are not shown.`,
		Example: `  ramet config show
  RAMET_LISTEN=127.0.0.1:8080 ramet config show --json`,
		Args:              none,
		RunE:              func(cmd *cobra.Command, _ []string) error { return p.configShow(asJSON) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(show)
	return cmd
}

func (p *program) configShow(asJSON bool) error {
	r, err := p.settings()
	if err != nil {
		return err
	}
	out := []settingJSON{}
	rows := [][]string{}
	for _, v := range r.Values() {
		text := v.Text
		if v.Setting.Secret && text != "" {
			text = "(set)"
		}
		s := settingJSON{Key: v.Setting.Key, Value: text, Source: v.Source, Environment: v.Setting.Env()}
		if f := v.Setting.Flag(); f != "" {
			s.Flag = "--" + f
		}
		out = append(out, s)
		if text == "" {
			text = "-"
		}
		rows = append(rows, []string{s.Key, text, s.Source})
	}
	if asJSON {
		return printJSON(p.Out, map[string]any{"settings": out, "files": append([]string{}, r.Files...)})
	}
	return table(p.Out, []string{"SETTING", "VALUE", "FROM"}, rows)
}

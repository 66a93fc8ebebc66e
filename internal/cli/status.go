package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
)

// statusJSON is what 'status --json' prints; docs/cli-json.md describes it.
type statusJSON struct {
	Running   bool           `json:"running"`
	URL       string         `json:"url"`
	Home      string         `json:"home,omitempty"`
	PID       int            `json:"pid,omitempty"`
	Version   string         `json:"version,omitempty"`
	Driver    string         `json:"driver,omitempty"`
	Isolation string         `json:"isolation,omitempty"`
	Region    string         `json:"region,omitempty"`
	Node      string         `json:"node,omitempty"`
	Auth      *bool          `json:"auth,omitempty"`
	StartedAt *time.Time     `json:"started_at,omitempty"`
	UptimeS   float64        `json:"uptime_s,omitempty"`
	Sandboxes map[string]int `json:"sandboxes,omitempty"`
	Capacity  *v1.Capacity   `json:"capacity,omitempty"`
	// Templates says "built" of each, or how far its build is.
	Templates map[string]string `json:"templates,omitempty"`
	Problem   string            `json:"problem,omitempty"`
}

func (p *program) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the server: version, URL, machines, sandboxes",
		Long: `Show the server that commands talk to: its version and URL, what runs its
machines and what isolates them, how many sandboxes it has, and how many warm
machines are ready for creates (means since the server's start).

The exit code is 0 when the server answers and 3 when it does not.`,
		Example: `  ramet status
  ramet status --json | jq -r .isolation
  RAMET_URL=https://ramet.example.com ramet status`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return p.status(ctx, asJSON)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (p *program) status(ctx context.Context, asJSON bool) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	s := statusJSON{URL: c.URL()}
	err = p.fillStatus(ctx, c, &s)
	if !asJSON {
		if err != nil {
			return err
		}
		return p.printStatus(s)
	}
	if err != nil {
		s.Problem = p.sentence(err)
	}
	if err := printJSON(p.Out, s); err != nil {
		return err
	}
	var gone *client.UnreachableError
	switch {
	case errors.As(err, &gone):
		return exitStatus(exitUnreachable)
	case err != nil:
		return exitStatus(exitFailed)
	}
	return nil
}

func (p *program) fillStatus(ctx context.Context, c *client.Client, s *statusJSON) error {
	if home := p.resolved.Client().Home; localURL(c.URL()) || serves(config.Home(home), c.URL()) {
		s.Home = home
	}
	info, err := c.Info(ctx)
	if err != nil {
		if local, errFile := config.ReadServerInfo(config.Home(s.Home)); s.Home != "" && errFile == nil && local.URL == c.URL() && local.Running() {
			s.PID = local.PID
			return fmt.Errorf("the server runs (pid %d) but does not answer as it should: %w", local.PID, err)
		}
		return err
	}
	s.Running, s.PID, s.Version = true, info.Pid, info.Version
	s.Driver, s.Isolation, s.Region, s.Node = info.Driver, info.Isolation, info.Region, info.Node
	s.Auth, s.StartedAt, s.UptimeS = &info.Auth, &info.StartedAt, info.UptimeS
	if s.Capacity, err = c.Capacity(ctx); err != nil {
		return err
	}
	list, err := c.TemplateList(ctx)
	if err != nil {
		return err
	}
	s.Templates = map[string]string{}
	for _, t := range list.Templates {
		s.Templates[t.Name] = "built"
	}
	for _, b := range list.Builds {
		s.Templates[b.Name] = buildState(b)
	}
	s.Sandboxes = map[string]int{}
	for sb, err := range c.Sandboxes(ctx, client.ListFilter{}) {
		if err != nil {
			return err
		}
		s.Sandboxes[sb.Status]++
	}
	return nil
}

func (p *program) printStatus(s statusJSON) error {
	isolation := map[string]string{
		"kvm":      "kvm (hardware virtualization)",
		"emulated": "emulated (a full virtual machine without hardware support; slower)",
		"gvisor":   "gvisor (a kernel in user space)",
	}[s.Isolation]
	if isolation == "" {
		isolation = s.Isolation
	}
	auth := "API keys"
	if s.Auth != nil && !*s.Auth {
		auth = "none: everybody who reaches the address may do everything"
	}
	rows := [][2]string{
		{"Server", fmt.Sprintf("%s, version %s, pid %d", s.URL, s.Version, s.PID)},
		{"Up for", age(time.Now().Add(-time.Duration(s.UptimeS*float64(time.Second))), time.Now())},
		{"Driver", s.Driver},
		{"Isolation", isolation},
		{"Access", auth},
		{"Node", s.Node + ", region " + s.Region},
		{"Sandboxes", statusCounts(s.Sandboxes)},
		{"Warm pool", poolStatus(s.Capacity)},
		{"Templates", templateStatus(s.Templates)},
		{"Started ahead", waitingStatus(s.Capacity)},
	}
	if s.Home != "" {
		rows = append(rows, [2]string{"Data", s.Home})
	}
	return p.printFields(rows)
}

// printFields writes names and values in two columns.
func (p *program) printFields(rows [][2]string) error {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(p.Out, "%-*s  %s\n", width, r[0], clean(r[1])); err != nil {
			return err
		}
	}
	return nil
}

// poolStatus is one line on the pool as a whole.
func poolStatus(c *v1.Capacity) string {
	if c == nil || c.Pool.Size == 0 {
		return "off"
	}
	p := c.Pool
	out := fmt.Sprintf("%d of %d ready", p.Ready, p.Size)
	if p.Hits+p.Misses > 0 {
		out += fmt.Sprintf("; %.0f %% of %d creates hit", 100*p.HitRate, p.Hits+p.Misses)
	}
	for _, t := range []struct {
		what string
		ms   float64
	}{{"hand-off", p.HandOffMsMean}, {"boot on demand", p.OnDemandBootMsMean}, {"refill", p.RefillMsMean}} {
		if t.ms > 0 {
			out += fmt.Sprintf(", %s %.3g ms", t.what, t.ms)
		}
	}
	return out
}

// waitingStatus says how many processes wait for forks and wakes, and what they cost.
func waitingStatus(c *v1.Capacity) string {
	if c == nil || c.WaitingSize == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d machines for forks and wakes (about 30 MB each)", c.Waiting, c.WaitingSize)
}

// templateStatus is one line on the templates: what is said only of those that are not built.
func templateStatus(states map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if state := states[name]; state != "built" {
			name += " (" + state + ")"
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, ", ")
}

func statusCounts(counts map[string]int) string {
	out := ""
	for _, status := range []string{"running", "creating", "hibernating", "hibernated", "waking", "stopping", "failed"} {
		if n := counts[status]; n > 0 {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprintf("%d %s", n, status)
		}
	}
	if out == "" {
		return "none"
	}
	return out
}

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

// ruleFlags are the rules of an egress policy, as 'create', 'run' and 'egress' take them.
type ruleFlags struct {
	prefix string // of their names
	allow  []string
	deny   []string
	order  string
}

func (f *ruleFlags) names() []string {
	return []string{f.prefix + "allow", f.prefix + "deny", f.prefix + "order"}
}

func (f *ruleFlags) add(cmd *cobra.Command, prefix string) {
	f.prefix = prefix
	names := f.names()
	cmd.Flags().StringArrayVar(&f.allow, names[0], nil, "let it reach only this: example.com, *.example.com, 203.0.113.0/24, each also with :PORT (repeatable)")
	cmd.Flags().StringArrayVar(&f.deny, names[1], nil, "do not let it reach this (repeatable)")
	cmd.Flags().StringVar(&f.order, names[2], "", "what goes first when both lists name something: deny_first (default) or allow_first")
	for n, arg := range []string{"DEST", "DEST", "ORDER"} {
		nameValue(cmd.Flags(), names[n], arg)
	}
	for _, name := range names[:2] {
		cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	cmd.RegisterFlagCompletionFunc(names[2], cobra.FixedCompletions(
		[]string{sandbox.EgressDenyFirst, sandbox.EgressAllowFirst}, cobra.ShellCompDirectiveNoFileComp))
}

// policy returns the policy of the flags, or nil when none was given. The server
// checks the rules.
func (f *ruleFlags) policy(cmd *cobra.Command) *v1.EgressPolicy {
	if !slices.ContainsFunc(f.names(), cmd.Flags().Changed) {
		return nil
	}
	p := v1.EgressPolicy{Order: ptr(f.order)}
	if len(f.allow) > 0 {
		p.Allow = &f.allow
	}
	if len(f.deny) > 0 {
		p.Deny = &f.deny
	}
	return &p
}

// egressJSON is what 'egress --json' prints.
type egressJSON struct {
	Sandbox string          `json:"sandbox"`
	Egress  bool            `json:"egress"`
	Policy  v1.EgressPolicy `json:"egress_policy"`
}

func (p *program) egressCommand() *cobra.Command {
	var rules ruleFlags
	var on, off, noRules, asJSON bool
	cmd := &cobra.Command{
		Use:   "egress ID",
		Short: "Show or change what a sandbox may reach",
		Long: `Show what a sandbox may reach on the network, or change it while it runs.

The rules that are given replace all that were there. --off closes the network and
keeps the rules, --on opens it again. A change is in force at once: connections
that are not allowed any more are cut. What was refused is in 'ramet events'.`,
		Example: `  ramet egress 3f2a
  ramet egress 3f2a --allow pypi.org --allow '*.pythonhosted.org:443'
  ramet egress 3f2a --deny '*.example.com' --deny 203.0.113.0/24
  ramet egress 3f2a --off
  ramet egress 3f2a --on --no-rules
  ramet egress 3f2a --json | jq .egress_policy.allow`,
		Args:              exactly(1, "ID"),
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			policy := rules.policy(cmd)
			if noRules {
				policy = &v1.EgressPolicy{}
			}
			return p.egress(ctx, args[0], on, off, policy, asJSON)
		}),
	}
	rules.add(cmd, "")
	cmd.Flags().BoolVar(&on, "on", false, "open the network, within the rules")
	cmd.Flags().BoolVar(&off, "off", false, "close the network; nothing leaves")
	cmd.Flags().BoolVar(&noRules, "no-rules", false, "take all rules away")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("on", "off")
	for _, name := range rules.names() {
		cmd.MarkFlagsMutuallyExclusive("no-rules", name)
	}
	return cmd
}

func (p *program) egress(ctx context.Context, name string, on, off bool, policy *v1.EgressPolicy, asJSON bool) error {
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
	if on || off || policy != nil {
		set := v1.EgressSet{Egress: sb.Egress, EgressPolicy: sb.EgressPolicy}
		if on || off {
			set.Egress = on
		}
		if policy != nil {
			set.EgressPolicy = *policy
		}
		if sb, err = c.SetEgress(ctx, id, set); err != nil {
			return fmt.Errorf("change what %s may reach: %w", name, err)
		}
	}
	if asJSON {
		return printJSON(p.Out, egressJSON{Sandbox: sb.Id, Egress: sb.Egress, Policy: sb.EgressPolicy})
	}
	out := "open"
	if !sb.Egress {
		out = "closed"
	}
	rows := [][2]string{{"Network out", out}, {"Order", deref(sb.EgressPolicy.Order)}}
	for _, list := range []struct {
		name  string
		rules *[]string
	}{{"Allow", sb.EgressPolicy.Allow}, {"Deny", sb.EgressPolicy.Deny}} {
		for _, rule := range deref(list.rules) {
			rows = append(rows, [2]string{list.name, rule})
		}
	}
	return p.printFields(rows)
}

// shownRules is how many rules of a list 'get' shows.
const shownRules = 5

// egressText says in a line what a sandbox may reach.
func egressText(sb *v1.Sandbox) string {
	if !sb.Egress {
		return "no"
	}
	var parts []string
	for _, list := range []struct {
		word  string
		rules *[]string
	}{{"allow ", sb.EgressPolicy.Allow}, {"deny ", sb.EgressPolicy.Deny}} {
		rules := deref(list.rules)
		switch n := len(rules) - shownRules; {
		case len(rules) == 0:
		case n > 0:
			parts = append(parts, fmt.Sprintf("%s%s and %d more", list.word, strings.Join(rules[:shownRules], ", "), n))
		default:
			parts = append(parts, list.word+strings.Join(rules, ", "))
		}
	}
	if len(parts) == 0 {
		return "yes"
	}
	if deref(sb.EgressPolicy.Order) == sandbox.EgressAllowFirst {
		parts = append(parts, "allow first")
	}
	return "yes; " + strings.Join(parts, "; ")
}

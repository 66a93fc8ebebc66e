package cli

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// timerFlags are --idle-timeout and --max-lifetime.
type timerFlags struct{ idle, lifetime time.Duration }

func (f *timerFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.idle, "idle-timeout", 0, "hibernate it after this time without a call, such as 10m; 0 is never")
	cmd.Flags().DurationVar(&f.lifetime, "max-lifetime", 0, "stop it this time after its create, such as 2h; 0 is never")
	for _, name := range []string{"idle-timeout", "max-lifetime"} {
		nameValue(cmd.Flags(), name, "TIME")
		cmd.Flags().Lookup(name).DefValue = ""
		cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// values returns the flags that were given, in whole seconds.
func (f *timerFlags) values(cmd *cobra.Command) (idle, lifetime *int, err error) {
	if idle, err = wholeSeconds(cmd, "idle-timeout", f.idle); err != nil {
		return nil, nil, err
	}
	lifetime, err = wholeSeconds(cmd, "max-lifetime", f.lifetime)
	return idle, lifetime, err
}

func wholeSeconds(cmd *cobra.Command, flag string, d time.Duration) (*int, error) {
	if !cmd.Flags().Changed(flag) {
		return nil, nil
	}
	if d < 0 {
		return nil, usageErrorf("--%s cannot be negative", flag)
	}
	n := int(math.Ceil(d.Seconds()))
	return &n, nil
}

func (p *program) updateCommand() *cobra.Command {
	var timers timerFlags
	var ends deadlineFlags
	var metadata []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change the times and notes of a sandbox",
		Long: `Change when a sandbox hibernates or ends by itself, and its metadata. What is not
given stays. The lifetime counts from the create: one that is over ends the
sandbox at once. --ends-in counts from now, or while it hibernates from its wake.`,
		Example: `  ramet update 3f2a --idle-timeout 10m
  ramet update 3f2a --max-lifetime 0 --metadata job=43 --metadata owner-
  ramet update 3f2a --ends-in 1h --at-end hibernate
  ramet update 3f2a --json --idle-timeout 1h | jq .expires_at`,
		Args:              exactly(1, "ID"),
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			var u v1.SandboxUpdate
			var err error
			if u.IdleTimeoutS, u.MaxLifetimeS, err = timers.values(cmd); err != nil {
				return err
			}
			if u.EndsInS, u.AtEnd, err = ends.values(cmd); err != nil {
				return err
			}
			changes := map[string]*string{}
			for _, m := range metadata {
				k, v, set := strings.Cut(m, "=")
				switch {
				case set && k != "":
					changes[k] = &v
				case !set && len(k) > 1 && strings.HasSuffix(k, "-"):
					changes[strings.TrimSuffix(k, "-")] = nil
				default:
					return usageErrorf("--metadata %q: must be K=V to set or K- to remove", m)
				}
			}
			if len(changes) > 0 {
				u.Metadata = &changes
			}
			c, err := p.connect()
			if err != nil {
				return err
			}
			id, err := resolveID(ctx, c, args[0])
			if err != nil {
				return err
			}
			sb, err := c.Update(ctx, id, u)
			if err != nil {
				return fmt.Errorf("update %s: %w", args[0], err)
			}
			if asJSON {
				return printJSON(p.Out, sb)
			}
			_, err = fmt.Fprintln(p.Out, sb.Id)
			return err
		}),
	}
	timers.add(cmd)
	ends.add(cmd)
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "set K=V, or remove K- (repeatable)")
	nameValue(cmd.Flags(), "metadata", "K=V")
	cmd.RegisterFlagCompletionFunc("metadata", cobra.NoFileCompletions)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the sandbox as JSON")
	return cmd
}

// seconds formats a number of seconds, 0 as never.
func seconds(n int) string {
	if n == 0 {
		return "never"
	}
	return "after " + (time.Duration(n) * time.Second).String()
}

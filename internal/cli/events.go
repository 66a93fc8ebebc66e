package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/client"
)

func (p *program) eventsCommand() *cobra.Command {
	var follow, asJSON bool
	var sandbox, since string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened to sandboxes, and why",
		Long: `Show what happened to the sandboxes of the project, oldest first: every change of
state with its reason and its cause, and what its network refused. With --follow
it goes on with what happens, until Ctrl-C. Events are kept for 30 days.`,
		Example: `  ramet events --since 10m
  ramet events -f --sandbox 3f2a
  ramet events --json | jq 'select(.type == "egress_denied") | .data'
  ramet events --json | jq -r 'select(.type == "failed") | .reason'`,
		Args:              none,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			f := client.EventFilter{Since: since, Follow: follow}
			if d, err := time.ParseDuration(since); err == nil {
				f.Since = time.Now().Add(-d).UTC().Format(time.RFC3339)
			}
			if sandbox != "" {
				if f.Sandbox, err = resolveID(ctx, c, sandbox); err != nil {
					return err
				}
			}
			return p.printEvents(ctx, c, f, asJSON)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what happens")
	cmd.Flags().StringVar(&sandbox, "sandbox", "", "only this sandbox")
	cmd.Flags().StringVar(&since, "since", "", "only events behind this id, later than this time, or as young as 10m")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	nameValue(cmd.Flags(), "sandbox", "ID")
	nameValue(cmd.Flags(), "since", "WHEN")
	cmd.RegisterFlagCompletionFunc("sandbox", p.completeIDs)
	cmd.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions)
	return cmd
}

func (p *program) printEvents(ctx context.Context, c *client.Client, f client.EventFilter, asJSON bool) error {
	for e, err := range c.Events(ctx, f) {
		if err != nil {
			return err
		}
		if asJSON {
			err = json.NewEncoder(p.Out).Encode(e)
		} else {
			err = p.printEvent(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *program) printEvent(e *v1.SandboxEvent) error {
	if e.Type == "gap" {
		_, err := fmt.Fprintln(p.Err, "ramet: "+clean(e.Reason))
		return err
	}
	id := e.Sandbox
	if len(id) > 16 {
		id = id[4:16]
	}
	_, err := fmt.Fprintf(p.Out, "%s  %s  %-14s  %s (%s)\n",
		e.Time.Local().Format(time.DateTime), clean(id), clean(e.Type), clean(e.Reason), clean(e.Cause))
	return err
}

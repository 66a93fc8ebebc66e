package control

import (
	"context"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// GuestMetrics is what the guest says of itself.
type GuestMetrics = agentv1.MetricsResponse

// Metrics asks the guest, and the host about its machine.
func (c *Control) Metrics(ctx context.Context, project string, id sandbox.ID) (*GuestMetrics, sandbox.MachineStats, error) {
	sb, err := c.store.Get(ctx, project, id)
	if err != nil {
		return nil, sandbox.MachineStats{}, err
	}
	if err := usable(sb); err != nil {
		return nil, sandbox.MachineStats{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.GuestTimeout, errNoAnswer)
	defer cancel()
	// Whoever watches a sandbox does not use it: this is not counted, and an idle one stays idle.
	g, err := c.machines.Guest(ctx, sb.Instance)
	if err != nil {
		return nil, sandbox.MachineStats{}, c.explain(ctx, sb, err)
	}
	m, err := g.Machine().Metrics(ctx, &agentv1.MetricsRequest{})
	if err != nil {
		return nil, sandbox.MachineStats{}, c.explain(ctx, sb, err)
	}
	c.answered(ctx, sb)
	stats, err := c.machines.Stats(sb.Instance)
	return m, stats, err
}

// Console returns the last lines of the guest's console. It does not need the guest's help.
func (c *Control) Console(ctx context.Context, project string, id sandbox.ID) (string, error) {
	sb, err := c.store.Get(ctx, project, id)
	if err != nil {
		return "", err
	}
	if err := usable(sb); err != nil {
		return "", err
	}
	return c.machines.Console(sb.Instance)
}

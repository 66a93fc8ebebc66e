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
	m, err := short(ctx, c, project, id, func(ctx context.Context, g Guest) (*GuestMetrics, error) {
		return g.Machine().Metrics(ctx, &agentv1.MetricsRequest{})
	})
	if err != nil {
		return nil, sandbox.MachineStats{}, err
	}
	sb, err := c.store.Get(ctx, project, id)
	if err != nil {
		return nil, sandbox.MachineStats{}, err
	}
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

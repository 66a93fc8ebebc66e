package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Egress is what a sandbox may reach. It replaces all that was there.
type Egress struct {
	On     bool // without it nothing leaves, and the policy is only kept
	Policy sandbox.EgressPolicy
}

// applyTimeout bounds changing the policy of a sandbox.
const applyTimeout = 30 * time.Second

// checkEgressPolicy refuses rules that cannot be read, and puts the others into the form
// in which denials name them.
func checkEgressPolicy(p *sandbox.EgressPolicy) error {
	parsed, err := network.ParsePolicy(true, *p)
	if err != nil {
		return err
	}
	*p = parsed.Written()
	return nil
}

// errSameEgress ends a change that would change nothing.
var errSameEgress = errors.New("the sandbox has this egress policy already")

// SetEgress changes what a sandbox may reach, in its record and then in its machine, and
// returns when it is in force there. The machine's network is in this process: when that
// ends in between, nothing leaves the machine until the next one reads the record.
// The change goes on when ctx ends.
func (c *Control) SetEgress(ctx context.Context, project string, id sandbox.ID, e Egress) (sandbox.Sandbox, error) {
	if err := checkEgressPolicy(&e.Policy); err != nil {
		return sandbox.Sandbox{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	_, err := c.store.Update(ctx, project, id, func(sb *sandbox.Sandbox) error {
		// One that is just being started has been given its policy already.
		if sb.State != sandbox.Hibernated {
			if err := usable(*sb); err != nil {
				return err
			}
		}
		if sb.Egress == e.On && sb.EgressPolicy.Equal(e.Policy) {
			return errSameEgress
		}
		sb.Egress, sb.EgressPolicy = e.On, e.Policy
		return nil
	}, store.Event{Type: "egress_changed", Cause: causeUpdate, Reason: egressReason(e)})
	if err != nil && !errors.Is(err, errSameEgress) {
		return sandbox.Sandbox{}, err
	}
	return c.applyEgress(ctx, project, id)
}

// applyEgress gives a machine what its record says now. Changes come here one after
// another and each reads the record after it has written it, so that the last one to be
// written is the last one to be applied.
func (c *Control) applyEgress(ctx context.Context, project string, id sandbox.ID) (sandbox.Sandbox, error) {
	select {
	case c.applying <- struct{}{}:
		defer func() { <-c.applying }()
	case <-ctx.Done():
		return sandbox.Sandbox{}, fmt.Errorf("set the egress policy of sandbox %s: %w", id, context.Cause(ctx))
	}
	sb, err := c.store.Get(ctx, project, id)
	if err != nil || sb.State == sandbox.Hibernated || sb.State == sandbox.Waking {
		return sb, err // its next machine is started with what the record says now
	}
	if err := c.machines.SetEgress(sb); err != nil {
		return sb, fmt.Errorf("set the egress policy of sandbox %s: %w", id, err)
	}
	return sb, nil
}

// carryEgress gives the machine that has taken the place of another what the record says
// now: it may have been changed since the machine was started.
func (c *Control) carryEgress(ctx context.Context, sb sandbox.Sandbox) {
	now, err := c.applyEgress(ctx, sb.Project, sb.ID)
	if err != nil && now.State == sandbox.Running && c.machines.Alive(now.Instance) {
		c.log.Error("give a machine the egress policy of its sandbox", "sandbox", sb.ID, "err", err)
	}
}

func egressReason(e Egress) string {
	rules := len(e.Policy.Allow) + len(e.Policy.Deny)
	switch {
	case !e.On:
		return "its network was closed"
	case rules == 0:
		return "its network was opened, without rules"
	}
	return fmt.Sprintf("its network was given an allow list of %d rules and a deny list of %d", len(e.Policy.Allow), len(e.Policy.Deny))
}

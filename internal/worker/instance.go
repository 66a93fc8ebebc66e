package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/internal/guest"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// Instance is one life of a machine with its gateway and agent connection.
type Instance struct {
	ID       sandbox.InstanceID
	Template Template
	// Steps says how long each step of the boot took.
	Steps []sandbox.StepTime

	dir     string
	driver  vmm.Driver
	machine vmm.Machine
	gateway *network.Gateway

	mu    sync.Mutex
	guest *guest.Client // guarded by mu; nil before the first dial
}

// agentTimeout bounds connecting to an agent that should be there.
const agentTimeout = 10 * time.Second

// Guest returns a live connection to the agent, connecting anew when the last
// one broke. It fails within ten seconds when the guest does not answer.
func (i *Instance) Guest(ctx context.Context) (*guest.Client, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.guest != nil {
		select {
		case <-i.guest.Closed():
			i.guest.Close()
			i.guest = nil
		default:
			return i.guest, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	conn, err := i.machine.DialAgent(ctx)
	if err != nil {
		return nil, fmt.Errorf("reach the agent of instance %s: %w", i.ID, err)
	}
	client, err := guest.Dial(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, &sandbox.Error{
			Kind: sandbox.Unavailable, Code: "guest_unreachable",
			Message: "the sandbox does not answer", Err: err,
		}
	}
	i.guest = client
	return client, nil
}

// Console returns the last lines of the guest's console.
func (i *Instance) Console() string { return i.machine.Console() }

// Stats says what the instance costs the host.
func (i *Instance) Stats() (sandbox.MachineStats, error) { return i.machine.Stats() }

// PID is the process id of the machine.
func (i *Instance) PID() int { return i.machine.PID() }

// Isolation says what stands between the guest and the host.
func (i *Instance) Isolation() sandbox.Isolation { return i.driver.Isolation() }

// hangUp closes the agent connection, so that a snapshot does not hold an open one.
func (i *Instance) hangUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.guest != nil {
		i.guest.Close()
		i.guest = nil
	}
}

// release closes what this process has of the machine, which runs on.
func (i *Instance) release() error {
	i.hangUp()
	var errs []error
	if i.gateway != nil {
		errs = append(errs, i.gateway.Close())
	}
	if err := i.machine.Release(); err != nil {
		errs = append(errs, fmt.Errorf("let go of instance %s: %w", i.ID, err))
	}
	return errors.Join(errs...)
}

// free ends the machine and releases everything of it on the host.
func (i *Instance) free(ctx context.Context) error {
	var errs []error
	if err := i.machine.Kill(ctx); err != nil {
		errs = append(errs, fmt.Errorf("end the machine of instance %s: %w", i.ID, err))
	}
	i.hangUp()
	if i.gateway != nil {
		errs = append(errs, i.gateway.Close())
	}
	if err := i.driver.Remove(ctx, i.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove instance %s: %w", i.ID, err))
	}
	return errors.Join(errs...)
}

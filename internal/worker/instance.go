package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
	// ColdBecause says why it has the disk of its snapshot and not the memory; empty otherwise.
	ColdBecause string

	dir          string
	driver       vmm.Driver
	machine      vmm.Machine
	agentTimeout time.Duration

	// dialing is full while somebody connects to the agent or hangs up. Waiting
	// for it must end with a context, so it is no mutex.
	dialing chan struct{}
	// saving is full while the machine is captured, likewise.
	saving  chan struct{}
	thawDue atomic.Bool // its processes may be frozen
	// flattening says that its disk is being flattened, or is about to.
	flattening atomic.Bool
	// freed is closed when free has ended.
	freed chan struct{}
	// onFreed, when set, is called before.
	onFreed func()

	mu      sync.Mutex
	guest   *guest.Client    // guarded by mu; nil before the first dial
	gateway *network.Gateway // guarded by mu
	policy  network.Policy   // guarded by mu; what the gateway has, and the next one gets
	ended   bool             // guarded by mu; free or release has begun
}

func (w *Worker) newInstance(id sandbox.InstanceID, t Template) *Instance {
	return &Instance{
		ID: id, Template: t, dir: w.dir(id), driver: w.cfg.Driver,
		agentTimeout: w.cfg.AgentTimeout, dialing: make(chan struct{}, 1), saving: make(chan struct{}, 1), freed: make(chan struct{}),
	}
}

// errSilent is what callers of a guest are told that does not answer.
var errSilent = sandbox.Errorf(sandbox.Unavailable, "guest_unreachable", "the sandbox does not answer")

// Guest returns a live connection to the agent, connecting anew when the last
// one broke. It fails within ten seconds when the guest does not answer, also
// when others are waiting for it.
func (i *Instance) Guest(ctx context.Context) (*guest.Client, error) {
	if client := i.liveGuest(); client != nil {
		return client, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, i.agentTimeout, errSilent)
	defer cancel()
	select {
	case i.dialing <- struct{}{}:
		defer func() { <-i.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("reach the agent of instance %s: %w", i.ID, context.Cause(ctx))
	}
	if client := i.liveGuest(); client != nil {
		return client, nil // somebody else connected meanwhile
	}
	// Not even a connection comes about when the monitor itself hangs.
	conn, err := i.machine.DialAgent(ctx)
	if err != nil {
		return nil, i.silent(err)
	}
	client, err := guest.Dial(ctx, conn)
	if err != nil {
		conn.Close()
		return nil, i.silent(err)
	}
	if i.thawDue.Load() {
		if err := thaw(ctx, client); err != nil {
			return nil, errors.Join(i.silent(err), client.Close())
		}
		i.thawDue.Store(false)
	}
	i.setGuest(client)
	return client, nil
}

// thawLater thaws the guest's processes as soon as its agent answers: the server
// that ended may have left them frozen.
func (i *Instance) thawLater() { i.thawDue.Store(true) }

func (i *Instance) silent(err error) error {
	return &sandbox.Error{
		Kind: errSilent.Kind, Code: errSilent.Code, Message: errSilent.Message,
		Err: fmt.Errorf("reach the agent of instance %s: %w", i.ID, err),
	}
}

// liveGuest returns the open connection, or nil.
func (i *Instance) liveGuest() *guest.Client {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.guest == nil || i.guest.Err() != nil {
		return nil
	}
	return i.guest
}

// setGuest puts the connection in the place of the last one, which it closes.
func (i *Instance) setGuest(client *guest.Client) {
	i.mu.Lock()
	old := i.guest
	i.guest = client
	i.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// Console returns the last lines of the guest's console.
func (i *Instance) Console() string { return i.machine.Console() }

// Stats says what the instance costs the host.
func (i *Instance) Stats() (sandbox.MachineStats, error) { return i.machine.Stats() }

// PID is the process id of the machine.
func (i *Instance) PID() int { return i.machine.PID() }

// Isolation says what stands between the guest and the host.
func (i *Instance) Isolation() sandbox.Isolation { return i.machine.Isolation() }

// SetPolicy changes what the guest may reach. Connections that are no longer
// allowed are cut.
func (i *Instance) SetPolicy(p network.Policy) {
	i.mu.Lock()
	defer i.mu.Unlock()
	// While the stream is attached again this gateway is a closed one; the next has the policy too.
	i.policy = p
	if i.gateway != nil {
		i.gateway.SetPolicy(p)
	}
}

// forgetDenials drops what the gateway refused while the machine was nobody's.
func (i *Instance) forgetDenials() {
	gateway := i.currentGateway()
	for gateway != nil {
		select {
		case _, ok := <-gateway.Events():
			if !ok {
				return
			}
		default:
			return
		}
	}
}

// hangUp closes the agent connection, so that a snapshot does not hold an open one.
// It waits for one that is being opened, which takes agentTimeout at most.
func (i *Instance) hangUp() {
	i.dialing <- struct{}{}
	defer func() { <-i.dialing }()
	i.setGuest(nil)
}

// release closes what this process has of the machine, which runs on.
func (i *Instance) release() error {
	gateway := i.end()
	i.hangUp()
	var errs []error
	if gateway != nil {
		errs = append(errs, gateway.Close())
	}
	if err := i.machine.Release(); err != nil {
		errs = append(errs, fmt.Errorf("let go of instance %s: %w", i.ID, err))
	}
	return errors.Join(errs...)
}

// end makes the gateway that it returns the last one.
func (i *Instance) end() *network.Gateway {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	return i.gateway
}

// free ends the machine and releases everything of it on the host. It is called once.
func (i *Instance) free(ctx context.Context) error {
	defer close(i.freed)
	if i.onFreed != nil {
		defer i.onFreed()
	}
	gateway := i.end()
	var errs []error
	if err := i.machine.Kill(ctx); err != nil {
		errs = append(errs, fmt.Errorf("end the machine of instance %s: %w", i.ID, err))
	}
	i.hangUp()
	if gateway != nil {
		errs = append(errs, gateway.Close())
	}
	if err := i.driver.Remove(ctx, i.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove instance %s: %w", i.ID, err))
	}
	return errors.Join(errs...)
}

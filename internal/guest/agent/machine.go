package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/guest/exec"
)

// Protocol is the version of the protocol that this agent speaks.
const Protocol = 1

// Version is the agent's own version, set by the linker.
var Version = "dev"

// Executor is what a refresh changes in the part that runs code. Package
// guest/exec implements it.
type Executor interface {
	agentv1connect.ExecHandler
	// Renew is called while the user's processes are frozen or not; it must work
	// for both.
	Renew(exec.Renewal) error
}

// Machine implements agentv1connect.MachineHandler.
type Machine struct {
	exec     Executor
	platform Platform
	logger   *slog.Logger

	// turn is held by what changes the machine as a whole, one at a time.
	turn chan struct{}
	// What the machine is now, guarded by turn. It outlives a restore, as all
	// memory does. A refresh leaves alone what is right already.
	hostname, machineID string // as a refresh set them last
	thawed              bool   // nothing was frozen since the last thaw

	// syncing counts writes to the disk that outlive their call.
	syncing sync.WaitGroup
}

// NewMachine returns the service of this machine.
func NewMachine(exec Executor, p Platform, logger *slog.Logger) *Machine {
	return &Machine{exec: exec, platform: p, logger: logger, turn: make(chan struct{}, 1)}
}

// Close waits for what outlived its call.
func (m *Machine) Close() { m.syncing.Wait() }

func (m *Machine) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Hello says who is there.
func (m *Machine) Hello(context.Context, *agentv1.HelloRequest) (*agentv1.HelloResponse, error) {
	kernel, err := kernelRelease()
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	return &agentv1.HelloResponse{Protocol: Protocol, AgentVersion: Version, Kernel: kernel, BootId: boot, MonotonicNanos: now}, nil
}

// Refresh gives the machine its identity and thaws it when all has worked. When
// a step fails, the user's processes stay as frozen as they were.
func (m *Machine) Refresh(ctx context.Context, r *agentv1.RefreshRequest) (*agentv1.RefreshResponse, error) {
	start := time.Now()
	if err := checkRefresh(r); err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := runSteps(m.refreshSteps(ctx, r)); err != nil {
		m.logger.Error("refresh failed", "error", err)
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("refresh: %w", err))
	}
	return &agentv1.RefreshResponse{Micros: micros(start)}, nil
}

func checkRefresh(r *agentv1.RefreshRequest) error {
	if n := len(r.Entropy); n != 0 && (n < 32 || n > 256) {
		return fmt.Errorf("entropy of %d bytes, not 32 to 256", n)
	}
	if r.Hostname != "" && !validHostname(r.Hostname) {
		return errors.New("invalid hostname")
	}
	if r.MachineId != "" && !validMachineID(r.MachineId) {
		return errors.New("invalid machine id")
	}
	return nil
}

// refreshSteps lists what the request asks for. What it leaves empty stays.
func (m *Machine) refreshSteps(ctx context.Context, r *agentv1.RefreshRequest) []step {
	var steps []step
	when := func(wanted bool, name string, run func() error) {
		if wanted {
			steps = append(steps, step{name, run})
		}
	}
	when(r.UnixNanos != 0, "set clock", func() error { return m.platform.setClock(r.UnixNanos, r.AtMonotonicNanos) })
	when(len(r.Entropy) > 0, "add entropy", func() error { return m.platform.addEntropy(r.Entropy) })
	renamed := r.Hostname != "" && r.Hostname != m.hostname
	when(renamed, "set hostname", func() error {
		m.hostname = "" // until it is as a whole
		if err := setHostname(r.Hostname); err != nil {
			return err
		}
		m.hostname = r.Hostname
		return nil
	})
	when(r.MachineId != "" && r.MachineId != m.machineID, "set machine id", func() error {
		m.machineID = ""
		if err := setMachineID(r.MachineId); err != nil {
			return err
		}
		m.machineID = r.MachineId
		return nil
	})
	when(len(r.CaBundle) > 0, "trust certificates", func() error { return trustCertificates("/", r.CaBundle) })
	when(r.GrowDisk, "grow disk", func() error {
		_, err := m.platform.growDisk(r.DiskBytes)
		return err
	})
	when(true, "renew what runs code", func() error {
		return m.exec.Renew(exec.Renewal{
			Env: r.Env, Renamed: renamed, Entropy: len(r.Entropy) > 0, Reseed: r.Reseed, Later: r.Unused,
		})
	})
	when(!m.thawed, "thaw", func() error { return m.thaw(ctx) })
	return steps
}

// Freeze stops the user's processes and may write dirty data to disk.
func (m *Machine) Freeze(ctx context.Context, r *agentv1.FreezeRequest) (*agentv1.FreezeResponse, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	m.thawed = false
	if err := m.platform.freeze(ctx); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("freeze: %w", err))
	}
	if r.Sync {
		if err := m.sync(ctx); err != nil {
			// Not half-frozen: the host will not save this machine.
			return nil, connect.NewError(connect.CodeInternal, errors.Join(err, m.thaw(context.WithoutCancel(ctx))))
		}
	}
	return &agentv1.FreezeResponse{}, nil
}

// Thaw lets the user's processes go on, with the time that it is told.
func (m *Machine) Thaw(ctx context.Context, r *agentv1.ThawRequest) (*agentv1.ThawResponse, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if r.UnixNanos != 0 {
		// A wrong clock is no reason to leave them frozen.
		if err := m.platform.setClock(r.UnixNanos, r.AtMonotonicNanos); err != nil {
			m.logger.Error("set the clock for a thaw", "error", err)
		}
	}
	if err := m.thaw(ctx); err != nil {
		return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("thaw: %w", err))
	}
	return &agentv1.ThawResponse{}, nil
}

func (m *Machine) thaw(ctx context.Context) error {
	if err := m.platform.thaw(ctx); err != nil {
		return err
	}
	m.thawed = true
	return nil
}

// Sync writes dirty data to disk.
func (m *Machine) Sync(ctx context.Context, _ *agentv1.SyncRequest) (*agentv1.SyncResponse, error) {
	if err := m.sync(ctx); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return &agentv1.SyncResponse{}, nil
}

// sync waits for the disk, but not longer than ctx: syncfs(2) itself cannot be
// interrupted.
func (m *Machine) sync(ctx context.Context) error {
	done := make(chan error, 1)
	m.syncing.Go(func() { done <- syncDisk() })
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sync: %w", context.Cause(ctx))
	}
}

// GrowDisk grows the root filesystem to its device.
func (m *Machine) GrowDisk(ctx context.Context, r *agentv1.GrowDiskRequest) (*agentv1.GrowDiskResponse, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	size, err := m.platform.growDisk(r.DiskBytes)
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return &agentv1.GrowDiskResponse{Bytes: size}, nil
}

// Metrics measures the machine.
func (m *Machine) Metrics(context.Context, *agentv1.MetricsRequest) (*agentv1.MetricsResponse, error) {
	r, err := measure()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	return r, nil
}

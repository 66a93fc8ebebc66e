package controltest

import (
	"context"
	"sync/atomic"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// Mortal is the Machines of a server that can be killed: from then on nothing that the server
// does has an effect, as with a process that is gone. The machines go on.
type Mortal struct {
	*Machines
	// OnDeath, when set, is called once, for what else the server must not reach any more.
	OnDeath func()

	kill func(point string) bool
	dead atomic.Bool
}

// NewMortal makes the machines of one life of a server. Kill is asked at each point, such as
// "save before", "save.half" and "save after", whether the server is killed there.
func NewMortal(m *Machines, kill func(point string) bool) *Mortal {
	x := &Mortal{Machines: m, kill: kill}
	m.OnStep = func(step string) error {
		if x.killed(step) {
			return ErrKilled
		}
		return nil
	}
	return x
}

// Kill kills the server now.
func (x *Mortal) Kill() {
	if x.dead.CompareAndSwap(false, true) && x.OnDeath != nil {
		x.OnDeath()
	}
}

// Dead says whether the server was killed.
func (x *Mortal) Dead() bool { return x.dead.Load() }

func (x *Mortal) killed(point string) bool {
	if !x.dead.Load() && x.kill != nil && x.kill(point) {
		x.Kill()
	}
	return x.dead.Load()
}

func (x *Mortal) around(name string, f func() error) error {
	if x.killed(name + " before") {
		return ErrKilled
	}
	err := f()
	if x.killed(name + " after") {
		return ErrKilled
	}
	return err
}

// Start is Machines.Start.
func (x *Mortal) Start(ctx context.Context, r control.StartRequest) (s control.Started, err error) {
	err = x.around("start", func() (err error) { s, err = x.Machines.Start(ctx, r); return err })
	return s, err
}

// Fork is Machines.Fork.
func (x *Mortal) Fork(ctx context.Context, parent sandbox.InstanceID, children []control.StartRequest) (s []control.Started, info sandbox.SaveInfo, err error) {
	err = x.around("fork", func() (err error) { s, info, err = x.Machines.Fork(ctx, parent, children); return err })
	return s, info, err
}

// Save is Machines.Save.
func (x *Mortal) Save(ctx context.Context, id sandbox.InstanceID, r control.SaveRequest) (info sandbox.SaveInfo, err error) {
	err = x.around("save", func() (err error) { info, err = x.Machines.Save(ctx, id, r); return err })
	return info, err
}

// Continue is Machines.Continue.
func (x *Mortal) Continue(ctx context.Context, id sandbox.InstanceID) error {
	return x.around("continue", func() error { return x.Machines.Continue(ctx, id) })
}

// Rename is Machines.Rename.
func (x *Mortal) Rename(ctx context.Context, id sandbox.InstanceID, sb sandbox.Sandbox) error {
	return x.around("rename", func() error { return x.Machines.Rename(ctx, id, sb) })
}

// VerifySnapshot is Machines.VerifySnapshot.
func (x *Mortal) VerifySnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return x.around("verify", func() error { return x.Machines.VerifySnapshot(ctx, id) })
}

// RemoveSnapshot is Machines.RemoveSnapshot.
func (x *Mortal) RemoveSnapshot(ctx context.Context, id sandbox.SnapshotID) error {
	return x.around("remove", func() error { return x.Machines.RemoveSnapshot(ctx, id) })
}

// Stop is Machines.Stop.
func (x *Mortal) Stop(ctx context.Context, id sandbox.InstanceID) error {
	return x.around("stop", func() error { return x.Machines.Stop(ctx, id) })
}

// Guest is Machines.Guest.
func (x *Mortal) Guest(ctx context.Context, id sandbox.InstanceID) (control.Guest, error) {
	if x.Dead() {
		return nil, ErrKilled
	}
	return x.Machines.Guest(ctx, id)
}

package worker

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
)

const (
	// attachTimeout bounds giving a running machine a new gateway.
	attachTimeout = 10 * time.Second
	// A machine whose stream breaks more often than this is ended: something is
	// wrong with it that a new gateway does not cure.
	attachBurst = 5
	attachEvery = time.Minute
	// maxDenials is how many denials wait for whoever records them.
	maxDenials = 256
	// endPatience is how long the end of a machine's process may come after
	// the end of its streams.
	endPatience = 2 * time.Second
)

// keepNetwork gives the machine a new gateway whenever the stream to the last
// one breaks, and returns when the machine or ctx has ended. Connections of the
// guest through the old gateway are lost. An error is why a machine that
// still runs has no network any more.
func (w *Worker) keepNetwork(ctx context.Context, i *Instance) error {
	often := rate.NewLimiter(rate.Every(attachEvery), attachBurst)
	for {
		gateway := i.currentGateway()
		if gateway == nil {
			return nil
		}
		w.tasks.Go(func() { w.passDenials(i.ID, gateway) })
		select {
		case <-i.machine.Done():
			return nil
		case <-ctx.Done():
			return nil
		case <-gateway.Done():
		}
		cause := gateway.Err()
		if err := gateway.Close(); err != nil {
			w.log.Warn("close a broken gateway", "instance", i.ID, "err", err)
		}
		err := fmt.Errorf("the stream broke %d times: %w", attachBurst+1, cause)
		if often.Allow() {
			err = w.reattach(ctx, i)
		}
		if err == nil {
			w.log.Warn("network stream attached again", "instance", i.ID, "cause", cause)
			continue
		}
		// The streams of a process that ends are closed before it is gone.
		select {
		case <-i.machine.Done():
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(endPatience):
			return err
		}
	}
}

// passDenials tells of what a gateway refuses, until it is closed.
func (w *Worker) passDenials(id sandbox.InstanceID, g *network.Gateway) {
	for {
		select {
		case d, ok := <-g.Events():
			if !ok {
				return
			}
			w.tellDenial(id, d)
		case <-w.life.Done():
			return
		}
	}
}

func (w *Worker) tellDenial(id sandbox.InstanceID, d network.Denial) {
	told := sandbox.EgressDenial{
		Instance: id, Time: d.Time, Protocol: d.Proto, Addr: d.Dst, Host: d.Name, Reason: d.Reason, Rule: d.Rule,
	}
	select {
	case w.denials <- told:
	default:
	}
}

// SetPolicy changes what the guest of an instance may reach. It is in force when
// SetPolicy returns; one that is only being taken over gets it with its gateway.
func (w *Worker) SetPolicy(id sandbox.InstanceID, p network.Policy) error {
	w.mu.Lock()
	i := w.instances[id]
	if a := w.adoptions[id]; a != nil {
		a.policy = p
		w.mu.Unlock()
		return nil
	}
	w.mu.Unlock()
	if i == nil {
		return errGone
	}
	i.SetPolicy(p)
	return nil
}

func (w *Worker) reattach(ctx context.Context, i *Instance) error {
	ctx, cancel := context.WithTimeout(ctx, attachTimeout)
	defer cancel()
	conn, err := i.machine.DialNetwork(ctx)
	if err != nil {
		return fmt.Errorf("open the network stream again: %w", err)
	}
	g, err := w.cfg.Network.Attach(conn, i.currentPolicy(), network.WithName(string(i.ID)))
	if err != nil {
		return err
	}
	if !i.setGateway(g) {
		return g.Close() // the instance is being freed
	}
	return nil
}

// currentGateway returns nil when the instance is being freed.
func (i *Instance) currentGateway() *network.Gateway {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return nil
	}
	return i.gateway
}

func (i *Instance) currentPolicy() network.Policy {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.policy
}

// setGateway says whether free, which closes the gateway, is still to come. The
// policy may have changed while the gateway was attached.
func (i *Instance) setGateway(g *network.Gateway) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return false
	}
	i.gateway = g
	g.SetPolicy(i.policy)
	return true
}

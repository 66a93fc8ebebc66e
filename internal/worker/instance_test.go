package worker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/fake"
)

// TestHungGuestFailsAllCallersInTime is about callers that wait for each other:
// none of them may wait longer than the timeout, however many there are.
func TestHungGuestFailsAllCallersInTime(t *testing.T) {
	const timeout = time.Second
	b := newBench(t, func(c *Config) { c.AgentTimeout = timeout })
	i := b.mustStart()
	client, err := i.Guest(b.ctx())
	if err != nil {
		t.Fatal(err)
	}
	b.hang()
	<-client.Closed()
	begin := time.Now()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := i.Guest(b.ctx())
			if e := userError(t, err); e.Kind != sandbox.Unavailable || e.Code != "guest_unreachable" {
				t.Errorf("a caller is told %v %s %q", e.Kind, e.Code, e.Message)
			}
		})
	}
	for ctx := b.ctx(); len(i.dialing) == 0; { // until one of them is at it
		if ctx.Err() != nil {
			t.Fatal("nobody tries to reach the guest")
		}
		runtime.Gosched()
	}
	wg.Go(func() { // one that has less patience
		ctx, cancel := context.WithTimeout(b.ctx(), timeout/10)
		defer cancel()
		if _, err := i.Guest(ctx); err == nil {
			t.Error("a caller reached a hung guest")
		}
		if took := time.Since(begin); took > timeout*7/8 {
			t.Errorf("a caller of %s waited for %s", timeout/10, took)
		}
	})
	wg.Wait()
	if took := time.Since(begin); took > timeout*3/2 {
		t.Errorf("three callers at once took %s, the timeout is %s", took, timeout)
	}
	// A monitor that hangs itself does not even take connections.
	b.host.Fail(fake.StepDialAgent, unix.EAGAIN)
	if _, err := i.Guest(b.ctx()); userError(t, err).Code != "guest_unreachable" {
		t.Errorf("a machine that cannot be reached: %v", err)
	}
	b.host.Fail(fake.StepDialAgent, nil)
	b.mu.Lock()
	b.hung = false
	b.mu.Unlock()
	if _, err := i.Guest(b.ctx()); err != nil {
		t.Errorf("after it answers again: %v", err)
	}
}

// TestStopWaitsForWhoFrees has a machine that ends by itself just when it is
// stopped. While the one is freed its uid must not be freed by the other.
func TestStopWaitsForWhoFrees(t *testing.T) {
	b := newBench(t, nil)
	i := b.mustStart()
	removing, release := make(chan struct{}, 4), make(chan struct{})
	b.driver.mu.Lock()
	b.driver.onRemove = func(string) {
		removing <- struct{}{}
		<-release
	}
	b.driver.mu.Unlock()
	b.host.Machines()[0].Exit(fake.ErrShutDown)
	<-removing // the watcher is at it
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop(b.ctx(), i.ID) }()
	hasty, cancel := context.WithTimeout(b.ctx(), 50*time.Millisecond)
	defer cancel()
	if err := b.Stop(hasty, i.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stop with little patience: %v", err)
	}
	select {
	case <-removing:
		t.Error("two at once free the instance")
	case err := <-stopped:
		t.Errorf("stop did not wait: %v", err)
	default:
	}
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if e := b.nextExit(); e.Instance != i.ID || !strings.Contains(e.Reason, "shut down") {
		t.Errorf("exit %+v", e)
	}
}

func TestStopTwiceAtOnce(t *testing.T) {
	b := newBench(t, nil)
	i := b.mustStart()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := b.Stop(b.ctx(), i.ID); err != nil {
				t.Error(err)
			}
			if n := len(b.host.Machines()); n != 0 {
				t.Errorf("stop returned while %d machines run", n)
			}
		})
	}
	wg.Wait()
	select {
	case e := <-b.Exits():
		t.Errorf("a stop was reported as %+v", e)
	default:
	}
}

func TestExitLogsABoundedConsole(t *testing.T) {
	b := newBench(t, nil)
	b.mustStart()
	before := len(b.log.String())
	m := b.host.Machines()[0]
	m.Guest().Print(strings.Repeat("x", 30<<10) + "\nthe end\n")
	m.Exit(fake.ErrShutDown)
	b.nextExit()
	if log := b.log.String()[before:]; !strings.Contains(log, "the end") || len(log) > loggedBytes+1<<10 {
		t.Errorf("the log has %d bytes more", len(log))
	}
}

// TestLeftoversThatStick must not keep the server from starting.
func TestLeftoversThatStick(t *testing.T) {
	dir := t.TempDir()
	host := fake.NewHost(fake.Config{})
	host.Fail(fake.StepRemove, errors.New("a process hangs"))
	id := sandbox.NewInstanceID()
	stuck := filepath.Join(dir, string(id))
	if err := os.Mkdir(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(c *Config) { c.Dir, c.Driver = dir, host.Driver() })
	if err := b.Adopt(b.ctx(), nil); err != nil {
		t.Fatal(err)
	}
	if log := b.log.String(); !strings.Contains(log, "a process hangs") {
		t.Errorf("nothing was said: %q", log)
	}
	if _, err := os.Stat(stuck); err != nil {
		t.Error(err)
	}
	host.Fail(fake.StepRemove, nil)
	if err := b.Stop(b.ctx(), id); err != nil { // as the sweep does
		t.Error(err)
	}
}

func TestNetworkIsAttachedAgain(t *testing.T) {
	b := newBench(t, nil)
	r := b.request()
	r.Policy.Egress = true
	i, err := b.Start(b.ctx(), r)
	if err != nil {
		t.Fatal(err)
	}
	b.nextNetwork() // the golden's
	first, old := b.nextNetwork(), i.currentGateway()
	first.Close()
	<-old.Done()
	b.nextNetwork()
	for ctx := b.ctx(); i.currentGateway() == old; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("the gateway is still the broken one")
		}
	}
	if g := i.currentGateway(); !g.Policy().Egress || g.Err() != nil {
		t.Errorf("the new gateway's policy is %+v, its state %v", g.Policy(), g.Err())
	}
	if err := b.Stop(b.ctx(), i.ID); err != nil {
		t.Fatal(err)
	}
	if i.gateway.Err() == nil {
		t.Error("the new gateway was not closed")
	}
}

func TestMachineWithoutANetworkIsEnded(t *testing.T) {
	for name, ruin := range map[string]func(b *bench){
		"cannot attach": func(b *bench) {
			b.host.Fail(fake.StepDialNetwork, errors.New("no"))
			b.nextNetwork().Close()
		},
		"breaks again and again": func(b *bench) {
			for range attachBurst + 1 {
				b.nextNetwork().Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			i := b.mustStart()
			b.nextNetwork() // the golden's
			ruin(b)
			if e := b.nextExit(); e.Instance != i.ID || !strings.Contains(e.Reason, "network") {
				t.Errorf("exit %+v", e)
			}
			b.host.Fail(fake.StepDialNetwork, nil)
		})
	}
}

// TestEndedMachineIsNotTakenForABrokenNetwork: the streams end before the process is reaped.
func TestEndedMachineIsNotTakenForABrokenNetwork(t *testing.T) {
	b := newBench(t, nil)
	i := b.mustStart()
	b.nextNetwork() // the golden's
	m := b.host.Machines()[0]
	b.host.Fail(fake.StepDialNetwork, errors.New("the process is ending"))
	old := i.currentGateway()
	b.nextNetwork().Close()
	<-old.Done()
	m.Exit(fake.ErrShutDown)
	if e := b.nextExit(); !strings.Contains(e.Reason, "shut down") {
		t.Errorf("exit %+v", e)
	}
}

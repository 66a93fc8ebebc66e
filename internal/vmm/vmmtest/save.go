package vmmtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/vmm"
)

// capture saves a machine with options, and returns the snapshot's directory.
func (s *Suite) capture(t testing.TB, m vmm.Machine, o vmm.SaveOptions) (string, vmm.Saving) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	saving, err := m.Save(ctx, dir, o)
	if err != nil {
		t.Fatalf("save: %v", err)
	}
	t.Cleanup(func() {
		if err := saving.Close(); err != nil {
			t.Errorf("close a snapshot: %v", err)
		}
	})
	if err := saving.Finish(ctx); err != nil {
		t.Fatalf("finish a snapshot: %v", err)
	}
	return dir, saving
}

// fork starts many machines at once from an ephemeral snapshot of one that runs, which
// goes on untouched.
func (s *Suite) fork(t *testing.T) {
	parent, a := s.Restored(t, s.Golden)
	a.Call("set", "who", "parent")
	a.Call("wdisk", 1<<20, 5, 65536)
	disk := a.Call("rdisk", 1<<20, 65536)
	sum := a.Call("dirty", 8, 3)
	dir, saving := s.capture(t, parent, vmm.SaveOptions{Ephemeral: true})
	if saving.Info().Paused <= 0 || saving.Info().DirtyBytes < 8<<20 {
		t.Errorf("%+v", saving.Info())
	}
	a.Want("parent", "get", "who") // on the same stream
	a.Call("set", "who", "later")
	var all sync.WaitGroup
	machines := make([]vmm.Machine, 4)
	for i := range machines {
		c := s.Config(t, dir, false)
		c.Source.Saving = saving
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
			defer cancel()
			var err error
			if machines[i], err = s.Driver.Start(ctx, c); err != nil {
				t.Errorf("start child %d: %v", i, err)
			}
		})
		t.Cleanup(func() { s.removeDir(t, c.Dir) })
	}
	all.Wait()
	// Nothing of the snapshot is needed any more.
	if err := errors.Join(saving.Close(), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	for i, m := range machines {
		if m == nil {
			continue
		}
		s.Resume(t, m)
		c := Dial(t, m)
		c.Want("parent", "get", "who")
		c.Want(disk, "rdisk", 1<<20, 65536)
		c.Want(sum, "sum")
		c.Call("wdisk", 1<<20, 100+i, 65536)
	}
	a.Want("later", "get", "who")
	a.Want(disk, "rdisk", 1<<20, 65536)
}

// stay leaves a machine paused, and lets it go on later.
func (s *Suite) stay(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	a.Call("set", "who", "sleeper")
	dir, _ := s.capture(t, m, vmm.SaveOptions{Stay: true})
	if got, err := a.Try(silenceTimeout, "echo", "x"); err == nil {
		t.Errorf("it runs: %q", got)
	}
	_, b := s.Restored(t, dir)
	b.Want("sleeper", "get", "who")
	s.Resume(t, m)
	Dial(t, m).Want("sleeper", "get", "who")
}

// diskOnly boots a machine from the disk of one that ran.
func (s *Suite) diskOnly(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	a.Call("set", "who", "forgotten")
	a.Call("wdisk", 1<<20, 9, 65536)
	disk := a.Call("rdisk", 1<<20, 65536)
	for _, o := range []vmm.SaveOptions{{DiskOnly: true}, {}} {
		dir, _ := s.capture(t, m, o)
		a.Want("forgotten", "get", "who")
		if err := s.Driver.Verify(t.Context(), dir); err != nil {
			t.Errorf("verify: %v", err)
		}
		c := s.Config(t, dir, false)
		c.Source.DiskOnly = true
		_, b := s.RestoredIn(t, c)
		b.Want(disk, "rdisk", 1<<20, 65536)
		if got := b.Call("get", "who"); got == "forgotten" {
			t.Error("it has the memory too")
		}
	}
	if err := s.Driver.Verify(t.Context(), t.TempDir()); err == nil {
		t.Error("an empty directory is a snapshot")
	}
}

// flattenStep is a part of the time that it takes to begin a flattening.
const flattenStep = 100 * time.Microsecond

// flatten saves a machine so often that its disk has many layers, and merges them while it runs.
func (s *Suite) flatten(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	want := map[int]string{}
	last := ""
	for i := range 9 {
		a.Call("wdisk", i<<20, 50+i, 65536)
		want[i] = a.Call("rdisk", i<<20, 65536)
		last, _ = s.capture(t, m, vmm.SaveOptions{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := m.Flatten(ctx); err != nil {
		t.Fatalf("flatten: %v", err)
	}
	after, _ := s.capture(t, m, vmm.SaveOptions{})
	_, b := s.Restored(t, last)
	_, c := s.Restored(t, after)
	for i := range 9 {
		for who, agent := range map[string]*Agent{"the machine": a, "an older snapshot": b, "a new snapshot": c} {
			if got := agent.Call("rdisk", strconv.Itoa(i<<20), 65536); got != want[i] {
				t.Errorf("%s: the disk at %d MB differs", who, i)
			}
		}
	}
	// One that is ended leaves nothing behind that a save meets, however far it was. There is so much to copy
	// that it is never faster.
	for i := range 9 {
		for at := range 16 {
			a.Call("wdisk", (16+16*i+at)<<20, at, 1<<20)
		}
		s.capture(t, m, vmm.SaveOptions{})
	}
	for i := range 24 {
		cut, stop := context.WithTimeout(ctx, time.Duration(i)*flattenStep)
		_ = m.Flatten(cut) // it was ended
		stop()
		s.capture(t, m, vmm.SaveOptions{})
	}
	if err := m.Flatten(ctx); err != nil {
		t.Errorf("flatten at the end: %v", err)
	}
	a.Want(want[8], "rdisk", 8<<20, 65536)
}

// prepared starts machines in processes that were started ahead.
func (s *Suite) prepared(t *testing.T) {
	d, ok := s.Driver.(vmm.Preparer)
	if !ok {
		t.Log("the driver starts no process ahead")
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m, a := s.Restored(t, s.Golden)
	a.Call("set", "who", "parent")
	a.Call("wdisk", 1<<20, 5, 65536)
	disk := a.Call("rdisk", 1<<20, 65536)
	dir, saving := s.capture(t, m, vmm.SaveOptions{Ephemeral: true})
	for _, from := range []string{s.Golden, dir} {
		c := s.Config(t, s.Golden, false)
		w, err := d.Prepare(ctx, c)
		if err != nil {
			t.Fatalf("prepare: %v", err)
		}
		t.Cleanup(func() { s.removeDir(t, c.Dir) })
		bad := c
		bad.Shape.VCPUs = 4
		if _, err := w.Start(ctx, bad); !errors.Is(err, vmm.ErrNotPrepared) {
			t.Errorf("a machine of another kind: %v", err)
		}
		c.Source.Snapshot = from
		if from == dir {
			c.Source.Saving = saving
		}
		child, err := w.Start(ctx, c)
		if err != nil {
			t.Fatalf("start: %v", err)
		}
		s.Resume(t, child)
		b := Dial(t, child)
		if from == dir {
			b.Want("parent", "get", "who")
			b.Want(disk, "rdisk", 1<<20, 65536)
		} else {
			b.Want("golden", "get", "origin")
		}
		b.Call("wdisk", 2<<20, 6, 65536)
		// It is a machine like any other.
		again, _ := s.capture(t, child, vmm.SaveOptions{})
		_, g := s.Restored(t, again)
		g.Want(b.Call("rdisk", 2<<20, 65536), "rdisk", 2<<20, 65536)
		if _, err := child.Stats(); err != nil {
			t.Errorf("stats: %v", err)
		}
	}
	c := s.Config(t, s.Golden, false)
	w, err := d.Prepare(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Kill(ctx); err != nil {
			t.Errorf("kill: %v", err)
		}
	}
	select {
	case <-w.Done():
	default:
		t.Error("a killed process still waits")
	}
	s.removeDir(t, c.Dir)
}

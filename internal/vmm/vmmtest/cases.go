package vmmtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

func (s *Suite) startsPaused(t *testing.T) {
	m := s.Start(t, s.Golden, false)
	a := Dial(t, m)
	if got, err := a.Try(silenceTimeout, "echo", "early"); err == nil {
		t.Fatalf("a machine that was not resumed answered %q", got)
	}
	s.Resume(t, m)
	Dial(t, m).Want("golden", "get", "origin")
	if m.PID() <= 0 {
		t.Errorf("pid %d", m.PID())
	}
}

func (s *Suite) pauseAndResume(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	a.Want("1", "echo", 1)
	s.pause(t, m)
	if got, err := a.Try(silenceTimeout, "echo", 2); err == nil {
		t.Fatalf("a paused machine answered %q", got)
	}
	s.Resume(t, m)
	Dial(t, m).Want("3", "echo", 3)
}

func (s *Suite) independent(t *testing.T) {
	_, a := s.Restored(t, s.Golden)
	_, b := s.Restored(t, s.Golden)
	a.Call("set", "who", "a")
	b.Call("set", "who", "b")
	a.Call("wdisk", 8192, 21, 4096)
	b.Call("wdisk", 8192, 22, 4096)
	a.Want("a", "get", "who")
	b.Want("b", "get", "who")
	diskA, diskB := a.Call("rdisk", 8192, 4096), b.Call("rdisk", 8192, 4096)
	if diskA == diskB {
		t.Error("two machines share what they wrote to their disks")
	}
	_, c := s.Restored(t, s.Golden)
	c.Want("", "get", "who")
	c.Want("golden", "get", "origin")
	if got := c.Call("rdisk", 8192, 4096); got == diskA || got == diskB {
		t.Error("a fresh machine sees another one's disk")
	}
}

// delta saves a machine that is itself restored, twice over: a fork of a fork.
func (s *Suite) delta(t *testing.T) {
	dir := t.TempDir()
	first, a := s.Restored(t, s.Golden)
	a.Call("set", "generation", 1)
	a.Call("wdisk", 1<<20, 31, 65536)
	disk1 := a.Call("rdisk", 1<<20, 65536)
	s.pause(t, first)
	s.Save(t, first, filepath.Join(dir, "one"))
	s.Resume(t, first)
	Dial(t, first).Call("set", "generation", "parent")

	second, b := s.Restored(t, filepath.Join(dir, "one"))
	b.Want("1", "get", "generation")
	b.Want(disk1, "rdisk", 1<<20, 65536)
	b.Call("set", "generation", 2)
	b.Call("wdisk", 2<<20, 32, 65536)
	disk2 := b.Call("rdisk", 2<<20, 65536)
	s.pause(t, second)
	s.Save(t, second, filepath.Join(dir, "two"))

	// The later snapshot needs nothing of the earlier one.
	if err := os.RemoveAll(filepath.Join(dir, "one")); err != nil {
		t.Fatal(err)
	}
	_, c := s.Restored(t, filepath.Join(dir, "two"))
	c.Want("2", "get", "generation")
	c.Want("golden", "get", "origin")
	c.Want(disk1, "rdisk", 1<<20, 65536)
	c.Want(disk2, "rdisk", 2<<20, 65536)
	Dial(t, first).Want("parent", "get", "generation")
}

func (s *Suite) dialAgain(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	a.Want("x", "echo", "x")
	for i := range 5 {
		b := Dial(t, m)
		b.Want(strconv.Itoa(i), "echo", i)
		if got, err := a.Try(silenceTimeout, "echo", "late"); err == nil {
			t.Fatalf("the earlier stream still answers: %q", got)
		}
		a = b
	}
}

func (s *Suite) network(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for _, payload := range []string{"first", "after-reconnecting"} {
		conn, err := m.DialNetwork(ctx)
		if err != nil {
			t.Fatalf("dial the network: %v", err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
			t.Fatal(err)
		}
		// The other side notices a reconnect in its own time, so frames may be lost at first.
		found := make(chan error, 1)
		go func() { found <- findFrame(conn, []byte(payload)) }()
		for done := false; !done; {
			a.Call("frame", payload)
			select {
			case err := <-found:
				if err != nil {
					t.Fatalf("read frames: %v", err)
				}
				done = true
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal("the guest's frame did not arrive")
			}
		}
	}
}

// findFrame reads frames until one holds the payload.
func findFrame(r io.Reader, payload []byte) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > 64<<10 {
			return errors.New("a frame is too large")
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(r, frame); err != nil {
			return err
		}
		if bytes.Contains(frame, payload) {
			return nil
		}
	}
}

func (s *Suite) resize(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	before := number(t, a.Call("mem"))
	if err := m.ResizeMemory(ctx, 1024); err != nil {
		t.Fatalf("resize memory: %v", err)
	}
	after, online := 0, time.Now().Add(startTimeout)
	for after < before+480 { // the guest has it, and takes a moment to bring the last block online
		if after = number(t, a.Call("mem")); time.Now().After(online) {
			break
		}
	}
	if after < before+480 || after > 1024 {
		t.Errorf("the guest has %d MB after growing from %d to 1024", after, before)
	}
	if err := m.ResizeMemory(ctx, 1024); err != nil {
		t.Errorf("resize to the same size: %v", err)
	}
	if err := m.ResizeMemory(ctx, sandbox.MaxMemoryMB+1); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("resize beyond the limit: %v", err)
	}
	if err := m.ResizeDisk(ctx, 1024); err != nil {
		t.Fatalf("resize disk: %v", err)
	}
	deadline := time.Now().Add(startTimeout)
	for a.Call("disk") != "1024" { // the guest hears of it by an interrupt
		if time.Now().After(deadline) {
			t.Fatalf("the guest's disk has %s MB instead of 1024", a.Call("disk"))
		}
	}
	if err := m.ResizeDisk(ctx, sandbox.MaxDiskMB+1); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("resize beyond the limit: %v", err)
	}
	s.deltaWithMoreMemory(t, m, a)
}

// largeGolden makes a golden snapshot of more than the least memory. What is
// restored from it has that much at once, and can grow, be saved and be adopted
// like any other.
func (s *Suite) largeGolden(t *testing.T) {
	const mb = 2 * sandbox.MinMemoryMB
	c := s.Config(t, "", true)
	c.Shape.MemoryMB = mb
	m, a := s.RestoredIn(t, c)
	if got := number(t, a.Call("mem")); got < mb-128 || got > mb {
		t.Errorf("the cold guest has %d MB of %d", got, mb)
	}
	sum := a.Call("dirty", 300, 7)
	first := sum
	s.pause(t, m)
	golden := filepath.Join(t.TempDir(), "large-golden")
	s.Save(t, m, golden)

	c = s.Config(t, golden, false)
	c.Shape.MemoryMB = mb
	n, b := s.RestoredIn(t, c)
	b.Want(sum, "sum")
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := n.ResizeMemory(ctx, mb); err != nil {
		t.Errorf("resize to what it has: %v", err)
	}
	if got := number(t, b.Call("mem")); got < mb-128 || got > mb {
		t.Errorf("the restored guest has %d MB of %d", got, mb)
	}
	if err := n.ResizeMemory(ctx, mb+256); err != nil {
		t.Fatalf("resize memory: %v", err)
	}
	sum = b.Call("dirty", 400, 9)
	s.pause(t, n)
	delta := filepath.Join(t.TempDir(), "large-delta")
	s.Save(t, n, delta)
	if err := n.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := s.NewDriver(t).Adopt(ctx, c)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	s.Resume(t, again)
	Dial(t, again).Want(sum, "sum")
	_, d := s.Restored(t, delta)
	d.Want(sum, "sum")
	// The first one's memory is what it was.
	_, e := s.RestoredIn(t, vmm.Config{Instance: sandbox.NewInstanceID(), Dir: s.Config(t, golden, false).Dir, Source: c.Source, Shape: c.Shape})
	e.Want(first, "sum")
}

// deltaWithMoreMemory saves what was plugged in, too.
func (s *Suite) deltaWithMoreMemory(t *testing.T, m vmm.Machine, a *Agent) {
	sum := a.Call("dirty", 300, 5)
	s.pause(t, m)
	snap := filepath.Join(t.TempDir(), "large")
	s.Save(t, m, snap)
	n, b := s.Restored(t, snap)
	b.Want(sum, "sum")
	b.Want("1024", "disk")
	if got := number(t, b.Call("mem")); got < 900 {
		t.Errorf("the restored guest has %d MB", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := n.ResizeMemory(ctx, 1280); err != nil {
		t.Errorf("resize memory after a restore: %v", err)
	}
	b.Want(sum, "sum")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *Suite) kill(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	a.Want("x", "echo", "x")
	if m.Err() != nil {
		t.Errorf("error of a running machine: %v", m.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for range 2 {
		if err := m.Kill(ctx); err != nil {
			t.Fatalf("kill: %v", err)
		}
	}
	select {
	case <-m.Done():
	default:
		t.Fatal("killed, but not done")
	}
	if m.Err() == nil {
		t.Error("a killed machine has no error")
	}
	_, err := m.DialAgent(ctx)
	wantGone(t, "dial", err)
	wantGone(t, "pause", m.Pause(ctx))
	wantGone(t, "resume", m.Resume(ctx))
	_, err = m.Save(ctx, t.TempDir(), vmm.SaveOptions{})
	wantGone(t, "save", err)
	_, err = m.Stats()
	wantGone(t, "stats", err)
}

func (s *Suite) guestOff(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	if got, err := a.Try(startTimeout, "off"); err == nil {
		t.Errorf("a guest that shut down answered %q", got)
	}
	select {
	case <-m.Done():
	case <-time.After(startTimeout):
		t.Fatal("the machine is still there")
	}
	wantGone(t, "error", m.Err())
}

func (s *Suite) adopt(t *testing.T) {
	m, c := s.start(t, s.Config(t, s.Golden, false))
	s.Resume(t, m)
	Dial(t, m).Call("set", "before", "restart")
	if err := m.Release(); err != nil {
		t.Fatalf("release: %v", err)
	}
	other := s.NewDriver(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	n, err := other.Adopt(ctx, c)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if n.PID() != m.PID() {
		t.Errorf("adopted pid %d instead of %d", n.PID(), m.PID())
	}
	Dial(t, n).Want("restart", "get", "before")
	if _, err := n.Stats(); err != nil {
		t.Errorf("stats after adoption: %v", err)
	}
	for _, on := range []bool{true, false} {
		if err := n.SetBackground(on); err != nil {
			t.Errorf("set background to %t: %v", on, err)
		}
	}
	s.pause(t, n)
	snap := filepath.Join(t.TempDir(), "adopted")
	s.Save(t, n, snap)
	_, b := s.Restored(t, snap)
	b.Want("restart", "get", "before")
	if err := n.Kill(ctx); err != nil {
		t.Fatalf("kill after adoption: %v", err)
	}
	wantGone(t, "error", n.Err())
	_, err = other.Adopt(ctx, c)
	wantGone(t, "adopt a killed machine", err)
}

func (s *Suite) adoptNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	_, err := s.Driver.Adopt(ctx, s.Config(t, s.Golden, false))
	wantGone(t, "adopt in an empty directory", err)
}

func (s *Suite) remove(t *testing.T) {
	m, c := s.start(t, s.Config(t, s.Golden, false))
	s.Resume(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for range 2 {
		if err := s.Driver.Remove(ctx, c.Dir); err != nil {
			t.Fatalf("remove: %v", err)
		}
	}
	select {
	case <-m.Done():
	case <-ctx.Done():
		t.Fatal("removed, but it still runs")
	}
	if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func (s *Suite) mismatchRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	image, vcpus := s.Config(t, s.Golden, false), s.Config(t, s.Golden, false)
	image.Source.Image.Hash = "another"
	vcpus.Shape.VCPUs = 4
	for name, c := range map[string]vmm.Config{"image": image, "vCPUs": vcpus} {
		if _, err := s.Driver.Start(ctx, c); !errors.Is(err, vmm.ErrSnapshotMismatch) {
			t.Errorf("start with another %s: %v", name, err)
		}
	}
}

// damagedRefused damages each file of a copy of the golden snapshot. The memory is
// left alone: a driver may have read it before.
func (s *Suite) damagedRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	files, err := os.ReadDir(s.Golden)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Size() > 256<<20 {
			continue
		}
		for name, damage := range map[string]func(path string) error{"flipped": flipFirstByte, "missing": os.Remove} {
			dir := t.TempDir()
			for _, f := range files {
				if err := snapshot.LinkOrCopy(nil, filepath.Join(s.Golden, f.Name()), filepath.Join(dir, f.Name())); err != nil {
					t.Fatal(err)
				}
			}
			if err := damage(filepath.Join(dir, f.Name())); err != nil {
				t.Fatal(err)
			}
			var corrupt *snapshot.CorruptError
			if _, err := s.Driver.Start(ctx, s.Config(t, dir, false)); !errors.As(err, &corrupt) {
				t.Errorf("start with %s %s: %v", f.Name(), name, err)
			}
		}
	}
}

func flipFirstByte(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[0] ^= 0xff
	if err := os.Remove(path); err != nil { // it may be a link to what others use
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func (s *Suite) failedStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	gone, ended := s.Config(t, filepath.Join(t.TempDir(), "nothing"), false), s.Config(t, s.Golden, false)
	if _, err := s.Driver.Start(ctx, gone); err == nil {
		t.Error("started from a snapshot that is not there")
	}
	over, stop := context.WithCancel(ctx)
	stop()
	if _, err := s.Driver.Start(over, ended); err == nil {
		t.Error("started with a context that has ended")
	}
	for _, c := range []vmm.Config{gone, ended} {
		left, err := os.ReadDir(c.Dir)
		if err != nil || len(left) != 0 {
			t.Errorf("left in the directory: %v, %v", left, err)
		}
	}
}

func (s *Suite) stats(t *testing.T) {
	m, a := s.Restored(t, s.Golden)
	a.Want("x", "echo", "x")
	before, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	a.Call("dirty", 40, 1)
	after, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.OwnPages - before.OwnPages; grown < 40*256*9/10 {
		t.Errorf("own pages grew by %d after the guest wrote 40 MB", grown)
	}
	if after.PSSBytes <= before.PSSBytes || after.CPUTime < before.CPUTime || after.DiskBytes <= 0 {
		t.Errorf("statistics %+v, then %+v", before, after)
	}
}

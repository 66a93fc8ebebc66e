// Package vmmtest is the conformance suite of vmm.Driver: what every driver
// and the fake have to do alike. Start reading at Run. The guest is a small one of
// its own (package testguest), so that the suite needs no template.
package vmmtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

// Sizes that the suite uses, in MB.
const (
	testDiskMB     = 512
	startTimeout   = 60 * time.Second
	silenceTimeout = 300 * time.Millisecond
)

// Subject is what the suite runs on.
type Subject struct {
	// Image boots the test guest.
	Image vmm.Image
	// NewDriver makes a driver as a fresh process of the server would: what it
	// knows of machines is on the host, not in memory. Its parameters are always the same.
	NewDriver func(testing.TB) vmm.Driver
}

// Suite is a Subject with a driver and a golden snapshot.
type Suite struct {
	Subject
	Driver vmm.Driver
	Golden string // directory
}

// New makes a golden snapshot and returns what tests need to start machines
// from it.
func New(t *testing.T, subject Subject, d vmm.Driver) *Suite {
	t.Helper()
	s := &Suite{Subject: subject, Driver: d, Golden: filepath.Join(t.TempDir(), "golden")}
	if !t.Run("ColdBootAndGolden", s.coldBootAndGolden) {
		t.Fatal("without a golden snapshot there is nothing more to test")
	}
	return s
}

// Run runs the suite.
func Run(t *testing.T, subject Subject) {
	s := New(t, subject, subject.NewDriver(t))
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"StartsPaused", s.startsPaused},
		{"PauseAndResume", s.pauseAndResume},
		{"RestoredMachinesAreIndependent", s.independent},
		{"SnapshotOfARestoredMachine", s.delta},
		{"Fork", s.fork},
		{"SaveAndStayPaused", s.stay},
		{"BootFromTheDiskOfASnapshot", s.diskOnly},
		{"Flatten", s.flatten},
		{"DialEndsTheLastStream", s.dialAgain},
		{"NetworkStream", s.network},
		{"Resize", s.resize},
		{"KillAndAfter", s.kill},
		{"GuestShutsDown", s.guestOff},
		{"Adopt", s.adopt},
		{"AdoptNothing", s.adoptNothing},
		{"RemoveKills", s.remove},
		{"MismatchIsRefused", s.mismatchRefused},
		{"DamagedSnapshotIsRefused", s.damagedRefused},
		{"FailedStartLeavesNothing", s.failedStart},
		{"Stats", s.stats},
	} {
		t.Run(c.name, c.run)
	}
}

// coldBootAndGolden boots a cold machine, sets a value in it, and saves it.
func (s *Suite) coldBootAndGolden(t *testing.T) {
	m := s.Start(t, "", true)
	s.Resume(t, m)
	a := Dial(t, m)
	a.Want("hello", "echo", "hello")
	a.Call("set", "origin", "golden")
	a.Call("wdisk", 0, 1, 4096)
	s.pause(t, m)
	s.Save(t, m, s.Golden)
	s.Resume(t, m) // it stays usable
	Dial(t, m).Want("golden", "get", "origin")
}

// Config is a machine's configuration in a directory of the test's own.
func (s *Suite) Config(t testing.TB, snapshot string, golden bool) vmm.Config {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "instance")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return vmm.Config{
		Instance: sandbox.NewInstanceID(), Dir: dir, Golden: golden,
		Source: vmm.Source{Image: s.Image, Snapshot: snapshot},
		Shape:  sandbox.Shape{VCPUs: 2, MemoryMB: sandbox.MinMemoryMB, DiskMB: testDiskMB},
	}
}

// Start starts a machine that the test's end removes.
func (s *Suite) Start(t testing.TB, snapshot string, golden bool) vmm.Machine {
	t.Helper()
	m, _ := s.start(t, s.Config(t, snapshot, golden))
	return m
}

func (s *Suite) start(t testing.TB, c vmm.Config) (vmm.Machine, vmm.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	m, err := s.Driver.Start(ctx, c)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console: %s", m.Console())
		}
		s.removeDir(t, c.Dir)
	})
	return m, c
}

func (s *Suite) removeDir(t testing.TB, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.Driver.Remove(ctx, dir); err != nil {
		t.Errorf("remove: %v", err)
	}
}

// Resume lets the machine run.
func (s *Suite) Resume(t testing.TB, m vmm.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := m.Resume(ctx); err != nil {
		t.Fatalf("resume: %v", err)
	}
}

func (s *Suite) pause(t testing.TB, m vmm.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := m.Pause(ctx); err != nil {
		t.Fatalf("pause: %v", err)
	}
}

// Save saves a machine as a snapshot in dir.
func (s *Suite) Save(t testing.TB, m vmm.Machine, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	tmp := dir + ".tmp"
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	saving, err := m.Save(ctx, tmp, vmm.SaveOptions{})
	if err != nil {
		t.Fatalf("save: %v", err)
	}
	if err := errors.Join(saving.Finish(ctx), saving.Close()); err != nil {
		t.Fatalf("save: %v", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		t.Fatal(err)
	}
}

// Restored starts a machine from a snapshot and lets it run.
func (s *Suite) Restored(t testing.TB, snapshot string) (vmm.Machine, *Agent) {
	t.Helper()
	return s.RestoredIn(t, s.Config(t, snapshot, false))
}

// RestoredIn is Restored for a configuration that the caller needs to know.
func (s *Suite) RestoredIn(t testing.TB, c vmm.Config) (vmm.Machine, *Agent) {
	t.Helper()
	m, _ := s.start(t, c)
	s.Resume(t, m)
	return m, Dial(t, m)
}

func wantGone(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, vmm.ErrGone) {
		t.Errorf("%s: got %v, want an error that wraps ErrGone", what, err)
	}
}

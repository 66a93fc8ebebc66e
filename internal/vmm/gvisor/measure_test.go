//go:build integration

package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/vmmtest"
)

// BenchmarkReal says what a machine's life costs: each figure is the mean over the rounds, in
// milliseconds. Run it on a quiet machine.
func BenchmarkReal(b *testing.B) {
	var s *vmmtest.Suite
	subject := vmmtest.Subject{Image: vmmtest.SandboxImage(b), NewDriver: newDriver}
	d := newDriver(b)
	s = &vmmtest.Suite{Subject: subject, Driver: d, Golden: filepath.Join(b.TempDir(), "golden")}
	m := s.Start(b, "", true)
	s.Resume(b, m)
	vmmtest.Dial(b, m).Want("x", "echo", "x")
	s.Save(b, m, s.Golden)

	spent := map[string]time.Duration{}
	timed := func(name string, do func()) {
		begin := time.Now()
		do()
		spent[name] += time.Since(begin)
	}
	ctx := b.Context()
	rounds := 0
	for b.Loop() {
		rounds++
		c := s.Config(b, s.Golden, false)
		var m vmm.Machine
		var err error
		timed("start", func() { m, err = d.Start(ctx, c) })
		if err != nil {
			b.Fatal(err)
		}
		timed("restore", func() { s.Resume(b, m) })
		a := vmmtest.Dial(b, m)
		timed("first-call", func() { a.Want("1", "echo", 1) })
		timed("hot-call", func() { a.Want("1", "echo", 1) })
		timed("pause", func() { err = m.Pause(ctx) })
		timed("resume", func() { s.Resume(b, m) })
		a.Call("dirty", 64, rounds)
		dir := filepath.Join(b.TempDir(), "snapshot")
		err = errors.Join(err, os.Mkdir(dir, 0o700))
		for name, o := range map[string]vmm.SaveOptions{"fork-64MB": {Ephemeral: true}, "hibernate-64MB": {}, "disk": {DiskOnly: true}} {
			sub := filepath.Join(dir, name)
			err = errors.Join(err, os.Mkdir(sub, 0o700))
			var saving vmm.Saving
			timed("save-"+name, func() {
				var serr error
				saving, serr = m.Save(ctx, sub, o)
				err = errors.Join(err, serr)
			})
			if err != nil {
				b.Fatal(err)
			}
			spent["paused-"+name] += saving.Info().Paused
			timed("finish-"+name, func() { err = saving.Finish(ctx) })
			err = errors.Join(err, saving.Close())
		}
		timed("kill", func() { err = errors.Join(err, m.Kill(ctx)) })
		timed("remove", func() { err = errors.Join(err, d.Remove(ctx, c.Dir), os.RemoveAll(dir)) })
		if err != nil {
			b.Fatal(err)
		}
	}
	for name, took := range spent {
		b.ReportMetric(float64(took.Microseconds())/1000/float64(rounds), name+"-ms")
	}
}

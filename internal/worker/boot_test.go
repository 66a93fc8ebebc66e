package worker

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/fake"
)

func TestStart(t *testing.T) {
	b := newBench(t, nil)
	i := b.mustStart()
	var steps []string
	for _, s := range i.Steps {
		steps = append(steps, s.Name)
	}
	want := []string{"template", "reserve", "start_vmm", "attach_network", "grow_disk", "resume", "await_agent", "identity"}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	g := b.host.Machines()[0].Guest()
	if g.MemoryMB() != 1024 || g.DiskMB() != 2*sandbox.DefaultDiskMB {
		t.Errorf("the machine has %d MB and a disk of %d MB", g.MemoryMB(), g.DiskMB())
	}
	calls := b.refreshed()
	if len(calls) != 2 {
		t.Fatalf("%d identities were given, want one to the golden and one to the machine", len(calls))
	}
	golden, own := calls[0], calls[1]
	if own.Hostname != "sbx" || own.MachineId != "0123" || !own.Reseed || len(own.Entropy) < 32 || !own.GrowDisk ||
		!maps.Equal(own.Env, map[string]string{"A": "template", "B": "own"}) {
		t.Errorf("identity %v", own)
	}
	// A golden outlives the setting: the next server may have another.
	if len(golden.CaBundle) != 0 || string(own.CaBundle) != "certificates" {
		t.Errorf("certificates: the golden's %q, the machine's %q", golden.CaBundle, own.CaBundle)
	}
	if err := b.Stop(b.ctx(), i.ID); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
	if err := b.Stop(b.ctx(), i.ID); err != nil {
		t.Errorf("stop again: %v", err)
	}
	if _, err := b.Instance(i.ID); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("the instance after its end: %v", err)
	}
}

// TestEachStepUnwinds breaks one step after the other, of a restore and of a
// golden snapshot's making: nothing may be left, the user is told, and the next create works.
func TestEachStepUnwinds(t *testing.T) {
	boom := errors.New("boom")
	at := func(step string) func(*bench) (mend func()) {
		return func(b *bench) func() {
			b.host.Fail(step, boom)
			return func() { b.host.Fail(step, nil) }
		}
	}
	refresh := func(b *bench) func() {
		b.setRefresh(boom)
		return func() { b.setRefresh(nil) }
	}
	for _, c := range []struct {
		step   string // as it is called in the log
		golden bool   // break the golden's making
		fault  func(*bench) func()
	}{
		{"start_vmm", false, at(fake.StepStart)},
		{"attach_network", false, at(fake.StepDialNetwork)},
		{"grow_disk", false, at(fake.StepResizeDisk)},
		{"resume", false, at(fake.StepResume)},
		{"await_agent", false, at(fake.StepDialAgent)},
		{"identity", false, at(fake.StepResizeMemory)},
		{"identity", false, refresh},
		{"start_vmm", true, at(fake.StepStart)},
		{"attach_network", true, at(fake.StepDialNetwork)},
		{"identity", true, refresh},
		{"pause", true, at(fake.StepPause)},
		{"save", true, at(fake.StepSave)},
	} {
		name := "restore/" + c.step
		if c.golden {
			name = "golden/" + c.step
		}
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.prints = "one\nthe last words\n"
			if !c.golden {
				if _, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape()); err != nil {
					t.Fatal(err)
				}
			}
			mend := c.fault(b)
			_, err := b.Start(b.ctx(), b.request())
			e := userError(t, err)
			if e.Kind != sandbox.Unavailable || e.Code != "boot_failed" || !strings.Contains(e.Message, c.step) {
				t.Errorf("the user is told %v %s %q", e.Kind, e.Code, e.Message)
			}
			// The fake guest prints when its agent is dialled.
			spoke := c.step == "identity" || c.step == "pause" || c.step == "save"
			if strings.HasSuffix(e.Message, "the last words") != spoke {
				t.Errorf("the console in the message: %q", e.Message)
			}
			b.nothingLeft()
			mend()
			b.mustStart()
		})
	}
}

func TestStartErrors(t *testing.T) {
	t.Run("the driver's own words", func(t *testing.T) {
		b := newBench(t, nil)
		full := sandbox.Errorf(sandbox.Unavailable, "too_many_machines", "this host is full")
		b.host.Fail(fake.StepStart, &vmm.StartError{Err: full, Console: "qemu: \x1b[31mno room\n"})
		_, err := b.Start(b.ctx(), b.request())
		e := userError(t, err)
		if e.Code != "too_many_machines" || !strings.HasPrefix(e.Message, "this host is full; ") || !strings.HasSuffix(e.Message, "qemu: [31mno room") {
			t.Errorf("the user is told %s %q", e.Code, e.Message)
		}
	})
	for step := range map[string]bool{fake.StepStart: true, fake.StepSave: true, fake.StepResizeDisk: true} {
		t.Run("a full disk at "+step, func(t *testing.T) {
			b := newBench(t, nil)
			b.host.Fail(step, unix.ENOSPC)
			_, err := b.Start(b.ctx(), b.request())
			if e := userError(t, err); e.Kind != sandbox.Unavailable || e.Code != "server_disk_full" || e.RetryAfter <= 0 {
				t.Errorf("the user is told %v %s %q", e.Kind, e.Code, e.Message)
			}
		})
	}
	t.Run("a guest that says nothing", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.ColdTimeout = 200 * time.Millisecond })
		b.prints = strings.Repeat("a line of text\n", 500) + "Kernel panic \xff\x00\x07\n"
		b.hang()
		_, err := b.Start(b.ctx(), b.request())
		e := userError(t, err)
		if e.Code != "boot_failed" || !strings.HasSuffix(e.Message, "\nKernel panic ?") || len(e.Message) > 2<<10 || strings.Count(e.Message, "\n") != shownLines {
			t.Errorf("the user is told %s %q", e.Code, e.Message)
		}
		if log := b.log.String(); !strings.Contains(log, "Kernel panic") || len(log) > 2*loggedBytes {
			t.Errorf("the log has %d bytes: %.300q", len(log), log)
		}
	})
	t.Run("a machine that ends", func(t *testing.T) {
		b := newBench(t, nil)
		if _, err := b.Golden(b.ctx(), b.template, sandbox.DefaultShape()); err != nil {
			t.Fatal(err)
		}
		b.hang()
		go func() {
			<-b.networks  // the golden's
			for range 2 { // it is tried twice
				<-b.networks
				b.host.Machines()[0].Exit(fake.ErrShutDown)
			}
		}()
		_, err := b.Start(b.ctx(), b.request())
		if e := userError(t, err); e.Code != "boot_failed" || !strings.Contains(e.Message, "ended") || !errors.Is(err, vmm.ErrGone) {
			t.Errorf("the user is told %s %q", e.Code, e.Message)
		}
	})
	t.Run("a caller that goes away", func(t *testing.T) {
		b := newBench(t, nil)
		ctx, cancel := context.WithCancel(b.ctx())
		cancel()
		if _, err := b.Start(ctx, b.request()); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestConsoleTail(t *testing.T) {
	for _, c := range []struct {
		text  string
		lines int
		bytes int
		want  string
	}{
		{"", 3, 100, ""},
		{"\n \n\t\n", 3, 100, ""},
		{"a\nb\nc\nd", 3, 100, "b\nc\nd"},
		{"a\r\nb\x1b[0m\tc\n\n", 3, 100, "a\nb[0m c"},
		{"bad \xff\xfe utf-8", 3, 100, "bad ?? utf-8"},
		{"\u202eright to left", 3, 100, "right to left"},
		{"0123456789", 3, 4, "6789"},
		{"äöü", 3, 3, "ü"},
		{strings.Repeat("\x00", 1<<20) + "end", 3, 10, "end"},
	} {
		if got := consoleTail(c.text, c.lines, c.bytes); got != c.want {
			t.Errorf("the last %d lines of %.20q: %q, want %q", c.lines, c.text, got, c.want)
		}
	}
}

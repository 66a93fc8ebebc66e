package control_test

import (
	"errors"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// worth makes a node say what its machines are worth; the fake ones themselves are emulated.
func worth(level sandbox.Isolation) func(*control.Config) {
	return func(cfg *control.Config) { cfg.Isolation = func() sandbox.Isolation { return level } }
}

func TestARequiredIsolation(t *testing.T) {
	for _, c := range []struct {
		name       string
		have, want sandbox.Isolation
		ready      int64 // machines of the pool
		code       string
		says       string
	}{
		{"the server's", "emulated", "emulated", 0, "", ""},
		{"the server's, from the pool", "emulated", "emulated", 1, "", ""},
		{"none", "emulated", "", 1, "", ""},
		{"a stronger one", "emulated", "kvm", 0, "isolation_unavailable", "is emulated, not kvm; leave isolation out, or use a server with the driver auto or qemu on a host where KVM works"},
		{"a stronger one, from the pool", "emulated", "gvisor", 1, "isolation_unavailable", "with the driver gvisor"},
		{"a weaker one is another one", "kvm", "gvisor", 1, "isolation_unavailable", "is kvm, not gvisor"},
		{"emulated under gVisor", "gvisor", "emulated", 1, "isolation_unavailable", "with the driver qemu and accel tcg"},
		{"a name that is none", "kvm", "hardware", 1, "invalid_isolation", "kvm, gvisor or emulated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := fresh(t, worth(c.have))
			n.machines.Ready.Store(c.ready)
			sb, _, err := n.Create(t.Context(), project, control.CreateRequest{Isolation: c.want})
			if codeOf(err) != c.code {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if c.code == "" {
				if sb.Isolation != sandbox.IsolationEmulated || n.state(t, sb.ID).Isolation != sandbox.IsolationEmulated || n.machines.Ready.Load() != 0 {
					t.Errorf("%+v, %d machines are ready", sb, n.machines.Ready.Load())
				}
				n.clean(t)
				return
			}
			var refused *sandbox.Error
			if !errors.As(err, &refused) || refused.Kind != sandbox.Invalid || !strings.Contains(refused.Message, c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if len(n.all(t)) != 0 || n.machines.Ready.Load() != c.ready || n.machines.Running() != 0 {
				t.Errorf("something was made: %+v, %d ready, %d running", n.all(t), n.machines.Ready.Load(), n.machines.Running())
			}
		})
	}
}

// Whether QEMU uses KVM may be known of the first machine only: then that is asked, and is not kept
// when it is another than was required.
func TestAnIsolationThatIsFoundOutLate(t *testing.T) {
	for name, c := range map[string]struct {
		isolation func(*control.Config)
		ready     int64
	}{
		"not known yet":                {worth(""), 0},
		"not known yet, from the pool": {worth(""), 1},
		"nobody says":                  {func(*control.Config) {}, 0},
		"said otherwise":               {worth("kvm"), 0},
		"said otherwise, of the pool":  {worth("kvm"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := fresh(t, c.isolation)
			n.machines.Ready.Store(c.ready)
			if _, _, err := n.Create(t.Context(), project, control.CreateRequest{Isolation: sandbox.IsolationKVM}); codeOf(err) != "isolation_unavailable" {
				t.Fatalf("%v", err)
			}
			if n.machines.Ready.Load() != 0 {
				t.Error("the machine of the pool was not asked")
			}
			if n.machines.Running() != 0 {
				t.Errorf("%d machines are left", n.machines.Running())
			}
			for _, sb := range n.all(t) {
				if sb.State != sandbox.Stopped || !strings.Contains(sb.FailReason, "is emulated, not kvm") {
					t.Errorf("a record is left: %+v", sb)
				}
			}
			n.clean(t)
		})
	}
}

func TestARequiredIsolationOfACheckpoint(t *testing.T) {
	have := sandbox.IsolationEmulated
	n := fresh(t, func(cfg *control.Config) { cfg.Isolation = func() sandbox.Isolation { return have } })
	sb := n.create(t)
	point, _, err := n.Checkpoint(t.Context(), project, sb.ID, control.CheckpointRequest{Name: "c"})
	if err != nil || point.Isolation != sandbox.IsolationEmulated {
		t.Fatalf("%+v %v", point, err)
	}
	before := len(n.all(t))
	refuse := func(want sandbox.Isolation, says string) {
		t.Helper()
		_, _, err := n.Create(t.Context(), project, control.CreateRequest{Checkpoint: point.ID, Isolation: want})
		var refused *sandbox.Error
		if !errors.As(err, &refused) || refused.Code != "isolation_unavailable" || !strings.Contains(refused.Message, says) {
			t.Errorf("%s: %v does not say %q", want, err, says)
		}
		if len(n.all(t)) != before {
			t.Errorf("%s: there are %d records, want %d", want, len(n.all(t)), before)
		}
	}
	refuse(sandbox.IsolationKVM, "the checkpoint is of a machine whose isolation was emulated, not kvm")
	if made := n.createWith(t, control.CreateRequest{Checkpoint: point.ID, Isolation: sandbox.IsolationEmulated}); made.Isolation != sandbox.IsolationEmulated {
		t.Errorf("%+v", made)
	}
	// The server now makes other machines than the checkpoint is of, whose machines start as they were.
	have = sandbox.IsolationGVisor
	if made := n.createWith(t, control.CreateRequest{Checkpoint: point.ID, Isolation: sandbox.IsolationEmulated}); made.Isolation != sandbox.IsolationEmulated {
		t.Errorf("%+v", made)
	}
	before = len(n.all(t))
	refuse(sandbox.IsolationGVisor, "the checkpoint is of a machine whose isolation was emulated, not gvisor")
	n.clean(t)
}

package control_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

var goodOnly = sandbox.EgressPolicy{Allow: []string{"good.test"}, Order: sandbox.EgressDenyFirst}

// reaches checks what a sandbox may reach, in its record and in its machine.
func (n *node) reaches(t *testing.T, id sandbox.ID, on bool, want sandbox.EgressPolicy) {
	t.Helper()
	sb := n.state(t, id)
	if sb.Egress != on || !sb.EgressPolicy.Equal(want) {
		t.Errorf("the record says %v %+v, want %v %+v", sb.Egress, sb.EgressPolicy, on, want)
	}
	if on2, p := n.machines.Egress(sb.Instance); on2 != on || !p.Equal(want) {
		t.Errorf("the machine has %v %+v, want %v %+v", on2, p, on, want)
	}
}

func (n *node) eventsOf(t *testing.T, id sandbox.ID, typ string) []control.Event {
	t.Helper()
	all, err := n.store.Events(t.Context(), project, id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var list []control.Event
	for _, e := range all {
		if e.Type == typ {
			list = append(list, e)
		}
	}
	return list
}

func TestEgressPolicyIsThereFromTheStart(t *testing.T) {
	n := fresh(t)
	sb := n.createWith(t, control.CreateRequest{EgressPolicy: &sandbox.EgressPolicy{Allow: []string{" GOOD.test. "}}})
	n.reaches(t, sb.ID, true, goodOnly)
	open := n.create(t)
	n.reaches(t, open.ID, true, sandbox.EgressPolicy{Order: sandbox.EgressDenyFirst})
	// A machine of the pool gets it by its hand-off.
	warm := sandbox.NewInstanceID()
	n.machines.HandOff = func() sandbox.InstanceID { return warm }
	handed := n.createWith(t, control.CreateRequest{NoEgress: true, EgressPolicy: &goodOnly})
	if handed.Instance != warm {
		t.Fatalf("the instance is %s", handed.Instance)
	}
	n.reaches(t, handed.ID, false, goodOnly)
	_, _, err := n.Create(t.Context(), project, control.CreateRequest{EgressPolicy: &sandbox.EgressPolicy{Deny: []string{"good.test", "300.1.2.3"}}})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Invalid || !strings.Contains(e.Message, "300.1.2.3") {
		t.Errorf("a wrong rule: %v", err)
	}
	if got := len(n.all(t)); got != 3 {
		t.Errorf("%d records", got)
	}
}

func TestEgressPolicyIsReplaced(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	denied := sandbox.EgressPolicy{Deny: []string{"evil.test"}, Order: sandbox.EgressDenyFirst}
	for range 2 { // the second time it is there already
		got, err := n.SetEgress(t.Context(), project, sb.ID, control.Egress{On: true, Policy: denied})
		if err != nil || !got.EgressPolicy.Equal(denied) {
			t.Fatalf("%+v %v", got, err)
		}
		n.reaches(t, sb.ID, true, denied)
	}
	if _, err := n.SetEgress(t.Context(), project, sb.ID, control.Egress{Policy: goodOnly}); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, sb.ID, false, goodOnly)
	if got := n.eventsOf(t, sb.ID, "egress_changed"); len(got) != 2 || got[0].Cause != "update" || got[0].Reason == "" {
		t.Errorf("events %+v", got)
	}
	if _, err := n.SetEgress(t.Context(), project, sb.ID, control.Egress{On: true, Policy: sandbox.EgressPolicy{Allow: []string{"http://good.test"}}}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a wrong rule: %v", err)
	}
	if _, err := n.SetEgress(t.Context(), "other", sb.ID, control.Egress{On: true}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project: %v", err)
	}
	n.reaches(t, sb.ID, false, goodOnly)

	// A new server finds it in the record.
	n.stop(t)
	n2 := start(t, n.dir, n.machines)
	n2.reaches(t, sb.ID, false, goodOnly)

	n2.machines.Crash(sb.Instance, "killed")
	waitFor(t, 10*time.Second, "failed", func() bool { return n2.state(t, sb.ID).State == sandbox.Failed })
	if _, err := n2.SetEgress(t.Context(), project, sb.ID, control.Egress{On: true}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a failed sandbox: %v", err)
	}
	if err := n2.Delete(t.Context(), project, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := n2.SetEgress(t.Context(), project, sb.ID, control.Egress{On: true}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a deleted sandbox: %v", err)
	}
}

// TestEgressChangesAtOnceAgree has many callers change one sandbox: whatever wins in the
// record is what the machine has.
func TestEgressChangesAtOnceAgree(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			p := sandbox.EgressPolicy{Allow: []string{fmt.Sprintf("n%d.test", i)}}
			if _, err := n.SetEgress(t.Context(), project, sb.ID, control.Egress{On: i%2 == 0, Policy: p}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got := n.state(t, sb.ID)
	n.reaches(t, sb.ID, got.Egress, got.EgressPolicy)
	if len(got.EgressPolicy.Allow) != 1 {
		t.Errorf("%+v", got.EgressPolicy)
	}
}

func TestDenialsBecomeFewEvents(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.DenialWindow = 20 * time.Millisecond })
	sb, other := n.create(t), n.create(t)
	denial := sandbox.EgressDenial{
		Instance: sb.Instance, Protocol: "tcp", Addr: netip.MustParseAddrPort("203.0.113.7:443"), Host: "evil.test",
		Reason: "denied by a rule", Rule: "deny evil.test",
	}
	n.machines.Refused <- denial
	waitFor(t, 10*time.Second, "the first denial", func() bool { return len(n.eventsOf(t, sb.ID, "egress_denied")) == 1 })
	e := n.eventsOf(t, sb.ID, "egress_denied")[0]
	for key, want := range map[string]string{
		"protocol": "tcp", "ip": "203.0.113.7", "port": "443", "host": "evil.test", "rule": "deny evil.test", "why": "denied by a rule", "count": "1", "state": "running",
	} {
		if e.Data[key] != want {
			t.Errorf("%s is %q, want %q", key, e.Data[key], want)
		}
	}
	if e.Cause != "policy" || !strings.Contains(e.Reason, "203.0.113.7:443") || !strings.Contains(e.Reason, "deny evil.test") {
		t.Errorf("%+v", e)
	}
	const many = 2000
	for range many - 1 {
		n.machines.Refused <- denial
	}
	counted := func() (events, sum int) {
		list := n.eventsOf(t, sb.ID, "egress_denied")
		for _, e := range list {
			c, err := strconv.Atoi(e.Data["count"])
			if err != nil {
				t.Fatal(err)
			}
			sum += c
		}
		return len(list), sum
	}
	waitFor(t, 20*time.Second, "all are counted", func() bool { _, sum := counted(); return sum == many })
	if events, _ := counted(); events > 30 {
		t.Errorf("%d events", events)
	}
	// Of a name that no terminal should see, of an instance that no record names, and of another sandbox.
	n.machines.Refused <- sandbox.EgressDenial{Instance: other.Instance, Protocol: "dns", Host: "a\x1b\xff.test.", Reason: "not in the allow list", Rule: "allow list"}
	n.machines.Refused <- sandbox.EgressDenial{Instance: sandbox.NewInstanceID(), Protocol: "dns", Host: "x", Reason: "r", Rule: "r"}
	n.machines.Refused <- sandbox.EgressDenial{Instance: other.Instance, Protocol: "udp", Addr: netip.MustParseAddrPort("10.0.0.1:53"), Reason: "private", Rule: "closed addresses"}
	waitFor(t, 10*time.Second, "the other's denials", func() bool { return len(n.eventsOf(t, other.ID, "egress_denied")) == 2 })
	list := n.eventsOf(t, other.ID, "egress_denied")
	if strings.Contains(list[0].Reason, "\x1b") || list[0].Data["host"] != "a\x1b\uFFFD.test" || list[0].Data["ip"] != "" {
		t.Errorf("%+v", list[0])
	}
	if list[1].Data["ip"] != "10.0.0.1" || list[1].Data["host"] != "" {
		t.Errorf("%+v", list[1])
	}
}

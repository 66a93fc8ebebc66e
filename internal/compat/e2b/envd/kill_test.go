package envd_test

import (
	"testing"

	envdv1 "ramet.dev/ramet/api/envd/v1"
	"ramet.dev/ramet/internal/sandbox"
)

func TestAKilledCommandIsGoneForWhoeverLooksNext(t *testing.T) {
	e := start(t)
	for range 5 {
		_, pid := e.begin(t.Context(), bash("sleep 600"), nil)
		if _, err := e.process(nil).SendSignal(t.Context(), &envdv1.SendSignalRequest{Process: byPid(pid), Signal: envdv1.Signal_SIGNAL_SIGKILL}); err != nil {
			t.Fatal(err)
		}
		if list := e.list(); len(list) != 0 {
			t.Errorf("%v", list)
		}
	}
}

func TestAClientsLimitDoesNotMakeAGuestLookDead(t *testing.T) {
	e := start(t)
	for range 5 {
		e.run(bash("sleep 600"), header{"Connect-Timeout-Ms": "50"})
	}
	sb, err := e.Control.Get(t.Context(), sandbox.DefaultProject, e.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !sb.UnresponsiveSince.IsZero() {
		t.Errorf("it is said not to answer since %s", sb.UnresponsiveSince)
	}
}

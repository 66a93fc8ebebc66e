package sandbox

import (
	"errors"
	"strings"
	"testing"
)

func TestIsolationsAreOrdered(t *testing.T) {
	levels := Isolations()
	for i, have := range levels {
		for j, least := range levels {
			if got := have.AtLeast(least); got != (i <= j) {
				t.Errorf("%s at least %s: %v", have, least, got)
			}
		}
		if !have.AtLeast("") || have.AtLeast("docker") {
			t.Errorf("%s is less than nothing, or at least what is no level", have)
		}
		if Isolation("docker").AtLeast(have) || Isolation("").AtLeast(have) {
			t.Errorf("what is no level is at least %s", have)
		}
		if got, err := ParseIsolation(string(have)); got != have || err != nil {
			t.Errorf("%s is read as %q, %v", have, got, err)
		}
		if notice := have.Notice(); (notice == "") != (have == IsolationKVM) || notice != "" && !strings.Contains(notice, string(have)) {
			t.Errorf("the notice of %s is %q", have, notice)
		}
	}
	if got, err := ParseIsolation(""); got != "" || err != nil {
		t.Errorf("nothing is read as %q, %v", got, err)
	}
	if _, err := ParseIsolation(strings.Repeat("x", 1<<20)); err == nil || len(err.Error()) > 200 {
		t.Errorf("a long name is repeated whole, or taken: %v", err != nil)
	}
	var refused *Error
	if _, err := ParseIsolation("KVM"); !errors.As(err, &refused) || refused.Kind != Invalid || !strings.Contains(refused.Message, "kvm, gvisor or emulated") {
		t.Errorf("%v", err)
	}
}

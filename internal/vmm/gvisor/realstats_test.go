//go:build integration

package gvisor_test

import (
	"testing"

	"ramet.dev/ramet/internal/vmm/process"
)

// TestRealStatsAreOfAllProcesses: each thread of the guest has a process of the host, and those of
// one guest process share an address space, which counts once.
func TestRealStatsAreOfAllProcesses(t *testing.T) {
	_, _, m, _ := booted(t)
	st, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	sentry, err := process.PSS(m.PID())
	if err != nil {
		t.Fatal(err)
	}
	pids := family(t, m.PID())
	all, err := process.SumPSS(pids)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d processes: %d KB, the sentry %d, all %d", len(pids), st.PSSBytes>>10, sentry>>10, all>>10)
	if len(pids) < 3 || all <= sentry {
		t.Errorf("the sentry alone has the guest: %d processes, %d bytes, the sentry %d", len(pids), all, sentry)
	}
	// These sizes are of different moments.
	const slack = 2 << 20
	if diff := st.PSSBytes - all; diff < -slack || diff > slack {
		t.Errorf("%d bytes, and all processes have %d", st.PSSBytes, all)
	}
	// What the guest has is in one file, which all of them have mapped.
	if own := st.OwnPages * 4096; own <= 0 || st.PSSBytes < own/2 {
		t.Errorf("%d bytes, %d of them the guest's own", st.PSSBytes, own)
	}
}

//go:build integration

package app_test

import (
	"testing"

	"ramet.dev/ramet/internal/config"
)

// TestRealSandboxesOutliveAChangeOfTheDriver starts a server with one driver, then one with the other, and back. What runs goes
// on, what is saved can be used, and new sandboxes are the new driver's.
func TestRealSandboxesOutliveAChangeOfTheDriver(t *testing.T) {
	home := freshHome(t)
	with := func(driver string) func(*config.Server) {
		return func(c *config.Server) { c.Driver = driver }
	}
	names := []string{"qemu", "gvisor"}
	if onGVisor() {
		names = []string{"gvisor", "qemu"}
	}
	isolation := func(b *box) string {
		t.Helper()
		var sb struct{ Isolation string }
		b.s.call(t, "GET", b.path(""), nil, &sb)
		return sb.Isolation
	}
	first, err := startServer(home, with(names[0]))
	if err != nil {
		t.Fatal(err)
	}
	make := func(s *server) *box {
		t.Helper()
		b := &box{t: t, s: s}
		s.call(t, "POST", "/v1/sandboxes", obj{}, b)
		return b
	}
	of := func(b *box, s *server) *box { return &box{t: t, s: s, ID: b.ID} }
	runs, sleeps := make(first), make(first)
	runs.mustPython("x = 1")
	sleeps.mustPython("x = 2")
	sleeps.hibernate()
	was := isolation(runs)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}

	second, err := startServer(home, with(names[1]))
	if err != nil {
		t.Fatal(err)
	}
	runs, sleeps = of(runs, second), of(sleeps, second)
	if got := runs.mustPython("print(x)"); got != "1\n" {
		t.Errorf("the one that ran says %q", got)
	}
	if got := sleeps.mustPython("print(x)"); got != "2\n" {
		t.Errorf("the one that slept says %q", got)
	}
	for _, b := range []*box{runs, sleeps} {
		if got := isolation(b); got != was {
			t.Errorf("isolation %q, want %q", got, was)
		}
	}
	var forked struct{ Children []string }
	second.call(t, "POST", runs.path("/fork"), obj{"n": 1}, &forked)
	child := of(&box{ID: forked.Children[0]}, second)
	if got := child.mustPython("x += 1; print(x)"); got != "2\n" || isolation(child) != was {
		t.Errorf("a child of the one that ran says %q, isolation %q", got, isolation(child))
	}
	fresh := make(second)
	fresh.mustPython("x = 3")
	if got := isolation(fresh); got == was || got == "" {
		t.Errorf("a new one has isolation %q, as the old ones", got)
	}
	if err := second.stop(); err != nil {
		t.Fatal(err)
	}

	third := ownServer(t, home, with(names[0]))
	for _, c := range []struct {
		b    *box
		want string
	}{{runs, "1\n"}, {sleeps, "2\n"}, {child, "2\n"}, {fresh, "3\n"}} {
		b := of(c.b, third)
		if got := b.mustPython("print(x)"); got != c.want {
			t.Errorf("%s says %q, want %q", b.ID, got, c.want)
		}
		third.call(t, "DELETE", b.path(""), nil, nil)
	}
}

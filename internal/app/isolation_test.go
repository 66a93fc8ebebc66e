package app

import (
	"errors"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/drivers"
	"ramet.dev/ramet/internal/vmm/fake"
	"ramet.dev/ramet/internal/vmm/qemu"
)

func TestBestIsolation(t *testing.T) {
	for _, c := range []struct {
		driver, accel string
		with, without sandbox.Isolation // /dev/kvm
	}{
		{"auto", "auto", "kvm", "gvisor"},
		{"auto", "kvm", "kvm", "gvisor"},
		{"auto", "tcg", "emulated", "emulated"},
		{"qemu", "auto", "kvm", "emulated"},
		{"qemu", "kvm", "kvm", "kvm"}, // or its machines do not start
		{"qemu", "tcg", "emulated", "emulated"},
		{"gvisor", "auto", "gvisor", "gvisor"},
		{"gvisor", "kvm", "gvisor", "gvisor"},
	} {
		cfg := config.Server{Driver: c.driver, Accel: c.accel}
		if with, without := bestIsolation(cfg, true), bestIsolation(cfg, false); with != c.with || without != c.without {
			t.Errorf("%s, %s: %s with KVM and %s without it", c.driver, c.accel, with, without)
		}
	}
}

func TestMinimumIsolation(t *testing.T) {
	for _, c := range []struct {
		least, have sandbox.Isolation
		says        string // of a refusal
	}{
		{"", "emulated", ""},
		{"emulated", "emulated", ""},
		{"emulated", "gvisor", ""},
		{"gvisor", "kvm", ""},
		{"kvm", "kvm", ""},
		{"gvisor", "emulated", "set driver to auto or gvisor, or min_isolation to emulated"},
		{"kvm", "gvisor", "min_isolation to gvisor"},
		{"kvm", "emulated", "on a host where KVM works"},
	} {
		err := checkMinimum(config.Server{Driver: "auto", MinIsolation: c.least}, c.have)
		var refused *sandbox.Error
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s of %s: %v", c.have, c.least, err)
		case c.says != "" && (!errors.As(err, &refused) || refused.Code != "isolation_too_weak" || !strings.Contains(refused.Message, c.says)):
			t.Errorf("%s of %s: %v does not say %q", c.have, c.least, err, c.says)
		}
	}
}

// What a create may require is what the driver gives, and QEMU does not know before it has tried KVM.
func TestIsolationOfTheServer(t *testing.T) {
	for accel, want := range map[string]sandbox.Isolation{"auto": "", "kvm": sandbox.IsolationKVM, "tcg": sandbox.IsolationEmulated} {
		d, err := qemu.New(qemu.Config{Accel: accel, StateDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		a := &App{cfg: config.Server{Driver: "qemu", Accel: accel}, driver: drivers.New(d, nil)}
		if got := a.isolation(); got != want {
			t.Errorf("%s: %q, want %q", accel, got, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	a := &App{cfg: config.Server{Driver: "auto", Accel: "auto"}, driver: drivers.New(fake.NewHost(fake.Config{}).Driver(), nil)}
	if got := a.isolation(); got != sandbox.IsolationEmulated {
		t.Errorf("of another driver: %q", got)
	}
}

// The driver has the last word: what it says is not known before it is opened.
func TestADriverBelowTheMinimumIsRefused(t *testing.T) {
	a := &App{cfg: config.Server{Driver: "auto", Accel: "auto", MinIsolation: sandbox.IsolationGVisor}, driver: drivers.New(fake.NewHost(fake.Config{}).Driver(), nil)}
	if err := a.requireIsolation(t.Context()); codeOf(err) != "isolation_too_weak" {
		t.Errorf("emulated machines where gvisor is the least: %v", err)
	}
	a.cfg.MinIsolation = sandbox.IsolationEmulated
	if err := a.requireIsolation(t.Context()); err != nil {
		t.Error(err)
	}
}

// Nobody waits for a template, and nothing is asked of the host, to learn that the server cannot start.
func TestPrepareRefusesAMinimumOutOfReach(t *testing.T) {
	for name, cfg := range map[string]config.Server{
		"gvisor for kvm":      {Driver: "gvisor", MinIsolation: sandbox.IsolationKVM},
		"emulated for kvm":    {Driver: "qemu", Accel: "tcg", MinIsolation: sandbox.IsolationKVM},
		"emulated for gvisor": {Driver: "auto", Accel: "tcg", MinIsolation: sandbox.IsolationGVisor},
	} {
		cfg.Home, cfg.Listen, cfg.Template = t.TempDir(), "127.0.0.1:0", "default"
		if err := Prepare(t.Context(), cfg); codeOf(err) != "isolation_too_weak" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func codeOf(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

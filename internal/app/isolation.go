package app

import (
	"context"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/qemu"
)

// isolation is that of the machines that would be started now, or "" as long as nobody knows
// whether QEMU would use KVM.
func (a *App) isolation() sandbox.Isolation {
	if d, ok := a.driver.First().(*qemu.Driver); ok && a.cfg.Accel != "kvm" && a.cfg.Accel != "tcg" {
		if _, probed := d.LastProbe(); !probed {
			return ""
		}
	}
	return a.driver.Isolation()
}

// forecastIsolation refuses settings that cannot give the minimum on this host, before a template is built
// to find out what they give.
func (a *App) forecastIsolation(context.Context) error {
	return checkMinimum(a.cfg, bestIsolation(a.cfg, qemu.HasKVM()))
}

// requireIsolation refuses a driver that gives less than the minimum.
func (a *App) requireIsolation(context.Context) error {
	return checkMinimum(a.cfg, a.driver.Isolation())
}

// bestIsolation is the most that the settings can give on a host whose KVM can be opened, or not.
func bestIsolation(cfg config.Server, kvm bool) sandbox.Isolation {
	switch {
	case cfg.Driver == "gvisor":
		return sandbox.IsolationGVisor
	case cfg.Accel == "tcg":
		return sandbox.IsolationEmulated
	case kvm, cfg.Driver == "qemu" && cfg.Accel == "kvm":
		return sandbox.IsolationKVM
	case cfg.Driver == "auto":
		return sandbox.IsolationGVisor
	}
	return sandbox.IsolationEmulated
}

// checkMinimum refuses an isolation that is less than the setting min_isolation.
func checkMinimum(cfg config.Server, have sandbox.Isolation) error {
	if have.AtLeast(cfg.MinIsolation) {
		return nil
	}
	mend := "set driver to auto or gvisor, or min_isolation to emulated"
	if cfg.MinIsolation == sandbox.IsolationKVM {
		mend = "set driver and accel to auto on a host where KVM works ('ramet doctor' says whether it does), or min_isolation to " + string(have)
	}
	return sandbox.Errorf(sandbox.Invalid, "isolation_too_weak",
		"min_isolation is %s, but with the driver %s the isolation of this server's sandboxes would be %s: %s", cfg.MinIsolation, cfg.Driver, have, mend)
}

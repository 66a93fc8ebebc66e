package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/drivers"
	"ramet.dev/ramet/internal/vmm/gvisor"
	"ramet.dev/ramet/internal/vmm/qemu"
)

// openDriver opens what runs the machines. What the other driver has left stays of use.
func (a *App) openDriver(ctx context.Context) error {
	first, err := a.chooseDriver(ctx)
	if err != nil {
		return err
	}
	a.driver = drivers.New(first, map[string]drivers.Open{"qemu": a.openQEMU, "gvisor": a.openGVisor})
	a.onClose(a.driver.Close)
	return nil
}

// chooseDriver opens the driver of new machines. With "auto" that is QEMU where a kernel really boots
// under KVM, or where emulation is asked for, and gVisor elsewhere; where gVisor cannot be had it is QEMU.
func (a *App) chooseDriver(ctx context.Context) (vmm.Driver, error) {
	auto := a.cfg.Driver == "auto"
	if a.cfg.Driver == "gvisor" {
		return a.openGVisor(ctx)
	}
	if auto && a.cfg.Accel != "tcg" && !qemu.HasKVM() {
		d, err := a.openGVisor(ctx)
		if sandbox.KindOf(err) != sandbox.Unsupported {
			return d, err
		}
		a.log.Warn("there is no KVM, and gVisor cannot be used: machines are emulated, which is about ten times slower", "err", err)
		return a.openQEMU(ctx)
	}
	d, err := a.newQEMU()
	if err != nil {
		return nil, err
	}
	useful, err := a.decideAccel(ctx, d)
	if err == nil && useful {
		return d, nil
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	return a.openGVisor(ctx)
}

func (a *App) newQEMU() (*qemu.Driver, error) {
	return qemu.New(qemu.Config{Accel: a.cfg.Accel, StateDir: config.HostState, Log: a.log, Disk: a.disk})
}

func (a *App) openQEMU(context.Context) (vmm.Driver, error) {
	d, err := a.newQEMU()
	if err != nil {
		return nil, err
	}
	return d, nil
}

// decideAccel finds out, once for a host, whether KVM really works here, and says whether QEMU is
// the driver to use.
func (a *App) decideAccel(ctx context.Context, d *qemu.Driver) (useful bool, err error) {
	auto := a.cfg.Driver == "auto"
	if auto && a.cfg.Accel == "tcg" {
		return true, nil // somebody asked for it
	}
	// It takes a kernel to find out.
	built, err := a.builder.Lookup(a.cfg.Template)
	if sandbox.KindOf(err) == sandbox.NotFound {
		if !auto && a.cfg.MinIsolation == "" {
			return true, nil // the build of the template asks again
		}
		var def image.Definition
		if def, err = a.definition(a.cfg.Template); err == nil {
			built, err = a.builder.Build(ctx, def)
		}
	}
	if err != nil {
		return false, err
	}
	probe, err := probeKVM(ctx, d, built)
	return !auto || probe.Usable, err
}

func probeKVM(ctx context.Context, d *qemu.Driver, built image.Artifact) (qemu.KVMProbe, error) {
	done := progress.Step(ctx, "find out whether KVM works")
	defer done()
	probe, err := d.ProbeKVM(ctx, built.Image(), false)
	if err != nil {
		return probe, fmt.Errorf("find out whether KVM works: %w", err)
	}
	return probe, nil
}

func (a *App) openGVisor(ctx context.Context) (vmm.Driver, error) {
	binary, err := runscPath()
	if err != nil {
		return nil, err
	}
	d, err := gvisor.New(ctx, gvisor.Config{Binary: binary, Log: a.log, Disk: a.disk})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// runscPath returns where our runsc is: beside the server's program, where a package puts
// it, or (empty) in PATH.
func runscPath() (string, error) {
	if path := os.Getenv(config.RunscVariable); path != "" {
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find ramet-runsc: %w", err)
	}
	for _, path := range config.RunscPlaces(self) {
		if isFile(path) {
			return path, nil
		}
	}
	return "", nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

package app

import (
	"context"
	"errors"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/tlscert"
	"ramet.dev/ramet/internal/vmm/qemu"
)

// Prepare makes a server start fast: it builds the template and its golden
// snapshot when they are missing, and leaves records and running machines to the
// server that comes after it. Progress goes to ctx's progress.Func.
func Prepare(ctx context.Context, cfg config.Server) (err error) {
	// What the server would refuse is refused before minutes of building.
	if err := errors.Join(checkExposure(cfg), tlscert.Check(cfg.TLS)); err != nil {
		return err
	}
	a, err := assemble(ctx, cfg, "", builders())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	_, err = a.buildTemplate(ctx, cfg.Template)
	return err
}

// definition is a template's, as the settings want it.
func (a *App) definition(name string) (image.Definition, error) {
	def, err := image.Find(name)
	if err == nil && a.cfg.GuestCA != string(image.GuestCAHost) {
		def.GuestCA = image.GuestCANone
	}
	return def, err
}

// buildTemplate builds a template with the golden snapshot of the default shape,
// or finds them there.
func (a *App) buildTemplate(ctx context.Context, name string) (image.Artifact, error) {
	def, err := a.definition(name)
	if err != nil {
		return image.Artifact{}, err
	}
	built, err := a.builder.Build(ctx, def)
	if err != nil {
		return built, err
	}
	if d, ok := a.driver.First().(*qemu.Driver); ok {
		if _, err := probeKVM(ctx, d, built); err != nil {
			return built, err
		}
	}
	template, err := a.workerTemplate(def.Name)
	if err != nil {
		return built, err
	}
	_, err = a.worker.Golden(ctx, template, sandbox.DefaultShape())
	return built, err
}

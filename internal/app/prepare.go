package app

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/tlscert"
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

// buildTemplate builds a template with the golden snapshot of the default shape,
// or finds them there.
func (a *App) buildTemplate(ctx context.Context, name string) (image.Artifact, error) {
	def, err := image.Find(name)
	if err != nil {
		return image.Artifact{}, err
	}
	if a.cfg.GuestCA != string(image.GuestCAHost) {
		def.GuestCA = image.GuestCANone
	}
	built, err := a.builder.Build(ctx, def)
	if err != nil {
		return built, err
	}
	if err := a.decideAccel(ctx, built); err != nil {
		return built, err
	}
	template, err := a.workerTemplate(def.Name)
	if err != nil {
		return built, err
	}
	_, err = a.worker.Golden(ctx, template, sandbox.DefaultShape())
	return built, err
}

// decideAccel finds out, once for a host, whether KVM really works here.
func (a *App) decideAccel(ctx context.Context, built image.Artifact) error {
	done := progress.Step(ctx, "find out whether KVM works")
	defer done()
	if _, err := a.driver.ProbeKVM(ctx, built.Image(), false); err != nil {
		return fmt.Errorf("find out whether KVM works: %w", err)
	}
	return nil
}

// recallAccel takes over what was found out before. Without a template there
// is nothing to boot yet; building it asks again.
func (a *App) recallAccel(ctx context.Context) error {
	built, err := a.builder.Lookup(a.cfg.Template)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return a.decideAccel(ctx, built)
}

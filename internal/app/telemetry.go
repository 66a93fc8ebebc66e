package app

import (
	"context"
	"os"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/telemetry"
)

// openTelemetry makes the metrics, and tracing where the environment asks for it.
func (a *App) openTelemetry(ctx context.Context) error {
	a.metrics = telemetry.NewMetrics(a.version, a.driver.Name(), string(a.driver.Isolation()))
	a.tracing = telemetry.Off()
	wanted, err := telemetry.Wanted(os.Getenv)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "bad_tracing", "tracing: %w", err)
	}
	if !wanted {
		return nil
	}
	if a.tracing, err = telemetry.NewTracing(ctx, a.version, a.cfg.Node, a.log); err != nil {
		return err
	}
	a.onClose(a.tracing.Close)
	return nil
}

// source is control as the metrics see it.
type source struct{ *control.Control }

func (s source) Room(ctx context.Context) (telemetry.Room, error) {
	r, err := s.Control.Room(ctx)
	return telemetry.Room(r), err
}

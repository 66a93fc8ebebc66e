// Package app wires a server together: New makes every part, Run serves,
// Close takes all down in reverse. Checking a configuration is New without Run.
// Nothing else in the program knows all the parts; tests boot this same App.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ramet.dev/ramet/internal/agentbin"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/network"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
	"ramet.dev/ramet/internal/telemetry"
	"ramet.dev/ramet/internal/tlscert"
	"ramet.dev/ramet/internal/vmm/drivers"
	"ramet.dev/ramet/internal/worker"
)

// shutdownTimeout bounds how long open calls may take to end at a shutdown.
const shutdownTimeout = 10 * time.Second

// keepBuilds is how long a template build stays after a newer one has taken its
// place, so that going back to the version before is quick.
const keepBuilds = 24 * time.Hour

// ballastBytes is enough for thousands of deletes and changes of state on a full disk.
const ballastBytes = 16 << 20

// App is one server.
type App struct {
	cfg     config.Server
	log     *slog.Logger
	version string
	disk    *durable.Disk // nil is the real one

	builder *image.Builder
	driver  *drivers.Set
	worker  *worker.Worker
	records *store.Store
	control *control.Control
	metrics *telemetry.Metrics
	tracing *telemetry.Tracing
	ln      net.Listener
	certs   *tlscert.Source // nil without TLS
	found   sync.Map        // of found, by template name

	// cleanup holds what Close undoes, last first.
	cleanup []func() error
}

// New makes a server that does not serve yet. On error everything is undone.
func New(ctx context.Context, cfg config.Server, version string) (*App, error) {
	return assemble(ctx, cfg, version, append(builders(), (*App).openControl, (*App).openAPI))
}

// part opens one part of an App and leaves what closes it with onClose.
type part func(*App, context.Context) error

// builders are the parts that a template and its golden snapshot are made with.
// They look at no record and touch no machine that runs.
func builders() []part {
	return []part{
		(*App).openHome, (*App).forecastIsolation, (*App).openImages, (*App).openDriver, (*App).requireIsolation,
		(*App).openTelemetry, (*App).openWorker,
	}
}

// assemble opens parts in order. On error everything is undone.
func assemble(ctx context.Context, cfg config.Server, version string, parts []part) (_ *App, err error) {
	cfg.Template = image.Canonical(cfg.Template)
	a := &App{cfg: cfg, log: newLogger(cfg), version: version}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	for _, open := range parts {
		if err := open(a, ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *App) onClose(f func() error) { a.cleanup = append(a.cleanup, f) }

// Close frees everything but the machines, which run on for the next server to
// adopt. It may be called once, after Run has returned.
func (a *App) Close() error {
	var errs []error
	for n := len(a.cleanup) - 1; n >= 0; n-- {
		errs = append(errs, a.cleanup[n]())
	}
	a.cleanup = nil
	return errors.Join(errs...)
}

func (a *App) home() config.Home { return config.Home(a.cfg.Home) }

func (a *App) openHome(ctx context.Context) error {
	// Machines run under uids of their own and pass through this directory.
	if err := os.MkdirAll(a.cfg.Home, 0o711); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := store.LockFile(ctx, a.home().Lock())
	if err != nil {
		return err
	}
	a.onClose(lock.Close)
	return nil
}

func (a *App) openImages(context.Context) error {
	agent, err := agentbin.Path(filepath.Join(a.cfg.Home, "agent"))
	if err != nil {
		return err
	}
	a.builder, err = image.New(image.Config{
		TemplatesDir: a.home().Templates(), AgentPath: agent, Logger: a.log, Disk: a.disk,
	})
	return err
}

func (a *App) openWorker(ctx context.Context) error {
	ca, err := a.guestCA()
	if err != nil {
		return err
	}
	a.worker, err = worker.New(ctx, worker.Config{
		Disk:        a.disk,
		Dir:         a.home().Instances(),
		SnapshotDir: a.home().Snapshots(),
		Driver:      a.driver,
		Network:     network.New(network.Config{Logger: a.log, AllowedPrivate: a.cfg.AllowPrivate}),
		Templates:   a.workerTemplate,
		Build:       a.build,
		CABundle:    ca,
		Log:         a.log,

		Pool: a.poolConfig(),
		Waiting: worker.WaitingConfig{
			Size: a.cfg.WaitingMachines, Kind: worker.PoolKind{Template: a.cfg.Template, Shape: sandbox.DefaultShape()},
		},
		FreeMemoryMB: func() (int, error) { return memInfoMB("MemAvailable") },
		UnpromisedMB: a.unpromisedMB,
	})
	if err != nil {
		return err
	}
	a.onClose(a.worker.Close)
	return nil
}

// guestCA reads the certificates of a PEM file that a setting names. Those of
// the host are part of the template. A file that would be of no use in a guest is
// found here, not by the first create.
func (a *App) guestCA() ([]byte, error) {
	if !filepath.IsAbs(a.cfg.GuestCA) {
		return nil, nil
	}
	text, err := os.ReadFile(a.cfg.GuestCA)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "bad_guest_ca", "the guests' certificates cannot be read: %w", err)
	}
	ca, err := image.ParseCA(text)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "bad_guest_ca", "%s does not do as the guests' certificates: %w", a.cfg.GuestCA, err)
	}
	return ca, nil
}

func (a *App) openControl(ctx context.Context) error {
	if err := store.RemoveTemporary(a.cfg.Home); err != nil {
		return err
	}
	records, err := store.Open(ctx, a.home().Database())
	if err != nil {
		return err
	}
	a.records = records
	a.onClose(records.Close)
	if err := records.KeepBallast(a.home().Ballast(), ballastBytes); err != nil {
		return err
	}
	if err := a.adopt(ctx, records); err != nil {
		return err
	}
	memory, err := memInfoMB("MemTotal")
	if err != nil {
		return err
	}
	a.control, err = control.New(ctx, control.Config{
		Store:        records,
		Machines:     machines{a.worker},
		Templates:    templates{a},
		Log:          a.log,
		Observer:     a.metrics,
		Files:        storeFiles(a.home()),
		Region:       a.cfg.Region,
		Node:         a.cfg.Node,
		Isolation:    a.isolation,
		HostMemoryMB: memory,
		Builtin:      image.Builtin(),
		Aliases:      image.Aliases(),
		Quota: sandbox.Quota{
			Sandboxes: a.cfg.MaxSandboxes, MemoryMB: a.cfg.MaxMemoryMB, DiskMB: a.cfg.MaxDiskMB,
		},
		Admission:   a.admission(memory),
		IdleTimeout: a.cfg.IdleTimeout,
		Retention: sandbox.Retention{
			Hibernated: a.cfg.Retain.Hibernated, Spaces: a.cfg.Retain.Spaces, Checkpoints: a.cfg.Retain.Checkpoints,
		},
	})
	if err != nil {
		return err
	}
	a.metrics.Watch(source{a.control})
	a.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return a.control.Close(ctx)
	})
	a.pruneTemplates(ctx, records)
	return a.ensureKey(ctx)
}

// pruneTemplates deletes old builds that neither a sandbox nor a snapshot stands on. It is
// not worth failing a start for.
func (a *App) pruneTemplates(ctx context.Context, records *store.Store) {
	inUse, err := records.TemplateHashesInUse(ctx, a.cfg.Node)
	if err != nil {
		a.log.Error("find out which template builds are in use", "err", err)
		return
	}
	gone, err := a.builder.Prune(ctx, inUse, time.Now().Add(-keepBuilds))
	for _, b := range gone {
		a.log.Info("removed an old template build", "template", b.Name, "hash", b.Hash)
	}
	if err != nil {
		a.log.Error("remove old template builds", "err", err)
	}
}

// Package floor measures what a server stands on, without the server: bare
// machines of the same shape, from the same golden snapshot, and their agents
// called directly. What it measures is the least that the server's own calls
// can take on this host, in the same minutes and under the same load.
//
// Its machines live in the data directory of the server, under instance ids of
// their own, so that a server that starts after a crash sweeps what is left.
// Start reading at Open; what is measured is in probes.go.
package floor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	_ "modernc.org/sqlite" // the SQL driver that the server uses

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/qemu"
	"ramet.dev/ramet/internal/worker"
)

// Floors implements bench.Floors. It is used by one goroutine.
type Floors struct {
	cfg      bench.FloorConfig
	home     config.Home
	driver   *qemu.Driver
	steps    *stepLog
	image    vmm.Image
	snapshot string // the golden one

	db    *sql.DB
	dbDir string

	mu       sync.Mutex
	machines map[*machine]bool // guarded by mu; not yet freed
}

var _ bench.Floors = (*Floors)(nil)

// Opener returns what bench.Options.OpenFloors wants for a data directory.
func Opener(home string) func(context.Context, bench.FloorConfig) (bench.Floors, error) {
	return func(ctx context.Context, cfg bench.FloorConfig) (bench.Floors, error) {
		f, err := Open(ctx, config.Home(home), cfg)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
}

// Open prepares the measuring of machines like those of the server in home. It
// needs root, as the server does.
func Open(ctx context.Context, home config.Home, cfg bench.FloorConfig) (_ *Floors, err error) {
	f := &Floors{cfg: cfg, home: home, steps: newStepLog(), machines: map[*machine]bool{}}
	if err := f.findTemplate(); err != nil {
		return nil, err
	}
	accel := "tcg"
	if cfg.Isolation == string(sandbox.IsolationKVM) {
		accel = "kvm"
	}
	f.driver, err = qemu.New(qemu.Config{Accel: accel, StateDir: config.HostState, Log: f.steps.logger()})
	if err != nil {
		return nil, err
	}
	f.snapshot = filepath.Join(filepath.Dir(f.image.RootExt4), worker.GoldenDir(f.driver.Name(), f.shape()))
	if _, err := os.Stat(f.snapshot); err != nil {
		return nil, errors.Join(fmt.Errorf("the template has no golden snapshot for %d vCPUs and %d MB: %w", cfg.VCPUs, cfg.MemoryMB, err), f.driver.Close())
	}
	if err := f.openDatabase(ctx); err != nil {
		return nil, errors.Join(err, f.driver.Close())
	}
	return f, nil
}

// shape is that of the server's machines.
func (f *Floors) shape() sandbox.Shape {
	return sandbox.Shape{VCPUs: f.cfg.VCPUs, MemoryMB: f.cfg.MemoryMB, DiskMB: f.cfg.DiskMB}
}

// findTemplate finds the build that the server uses.
func (f *Floors) findTemplate() error {
	builder, err := image.New(image.Config{TemplatesDir: f.home.Templates()})
	if err != nil {
		return err
	}
	all, err := builder.List()
	if err != nil {
		return fmt.Errorf("look for the template: %w", err)
	}
	for _, built := range all {
		if built.Name == f.cfg.Template && built.Hash == f.cfg.TemplateHash {
			f.image = built.Image()
			return nil
		}
	}
	return fmt.Errorf("the server's template %s is not in %s", f.cfg.Template, f.home.Templates())
}

// openDatabase makes a database like the server's, on the same disk.
func (f *Floors) openDatabase(ctx context.Context) error {
	f.dbDir = filepath.Join(f.home.Instances(), string(sandbox.NewInstanceID()))
	if err := os.Mkdir(f.dbDir, 0o700); err != nil {
		return fmt.Errorf("make a place for a database: %w", err)
	}
	dsn := url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: filepath.Join(f.dbDir, "floor.db")}).EscapedPath(),
		RawQuery: url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)"}, "_txlock": {"immediate"}}.Encode(),
	}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(1)
		f.db = db
		_, err = db.ExecContext(ctx, "CREATE TABLE record (id TEXT PRIMARY KEY, state TEXT NOT NULL)")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make a database: %w", err), f.closeDatabase())
	}
	return nil
}

func (f *Floors) closeDatabase() error {
	var err error
	if f.db != nil {
		err = f.db.Close()
	}
	return errors.Join(err, os.RemoveAll(f.dbDir))
}

// commit is one transaction that is on the disk when it returns.
func (f *Floors) commit(ctx context.Context) error {
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO record VALUES (?, 'running')", string(sandbox.NewID())); err != nil {
		return errors.Join(fmt.Errorf("write a record: %w", err), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Close frees everything, also machines of probes that failed.
func (f *Floors) Close(ctx context.Context) error {
	f.mu.Lock()
	left := make([]*machine, 0, len(f.machines))
	for m := range f.machines {
		left = append(left, m)
	}
	f.mu.Unlock()
	var errs []error
	for _, m := range left {
		errs = append(errs, m.free(ctx))
	}
	return errors.Join(append(errs, f.closeDatabase(), f.driver.Close())...)
}

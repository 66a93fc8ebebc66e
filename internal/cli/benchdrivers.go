package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

// allDrivers is the value of --driver for one after the other.
const allDrivers = "all"

// benchDrivers are measured with --driver all, in this order.
func benchDrivers() []string { return []string{"qemu", "gvisor"} }

// benchTemplate is what the sandboxes of 'bench' are made of.
const benchTemplate = "default"

const (
	// benchEndTimeout is how long a server that was measured may take to end.
	benchEndTimeout = time.Minute
	// benchCleanTimeout bounds the end of what it has left, in all.
	benchCleanTimeout = 3 * time.Minute
)

// benchSettings are those of the local server that its copies for measuring have too:
// what changes how fast machines are there, and how many there may be.
func benchSettings() []string {
	return []string{
		"accel", "pool_size", "pool_shapes", "waiting_machines", "guest_ca",
		"memory_reserve_mb", "disk_reserve_mb", "memory_overcommit", "disk_overcommit",
	}
}

// measureDrivers measures one driver after the other, each on a server of its own. One that
// cannot be measured does not keep the others from it.
func (p *program) measureDrivers(ctx context.Context, o benchOptions, drivers []string) (*bench.Drivers, error) {
	place, err := p.openBenchPlace(ctx)
	if err != nil {
		return nil, err
	}
	d := &bench.Drivers{}
	var errs []error
	for _, driver := range drivers {
		report, err := p.measureDriver(ctx, o, place, driver)
		if report != nil {
			d.Reports = append(d.Reports, report)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", driver, err))
		}
		if ctx.Err() != nil {
			break
		}
		if report == nil {
			d.Failed = append(d.Failed, bench.DriverError{Driver: driver, Error: err.Error()})
		}
	}
	d.Compare()
	return d, errors.Join(append(errs, place.close())...)
}

// measureDriver measures a server of its own. There can be both a report and an error.
func (p *program) measureDriver(ctx context.Context, o benchOptions, place *benchPlace, driver string) (report *bench.Report, err error) {
	s, err := p.newBenchServer(place, driver)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.removeBenchServer(ctx, s)) }()
	c, err := p.startBenchServer(ctx, place, s)
	if err != nil {
		return nil, err
	}
	report, err = p.measure(ctx, o, c, string(s.home))
	if s.child.hasEnded() {
		p.printLogTail(s.home, 0)
		err = errors.Join(err, errors.New("the server ended by itself"))
	}
	if report != nil && slices.ContainsFunc(report.Results, func(r bench.Result) bool { return r.Failures > 0 }) {
		kept := place.from.BenchLog(driver)
		if rerr := os.Rename(s.home.Log(), kept); rerr != nil {
			err = errors.Join(err, fmt.Errorf("keep the server's log: %w", rerr))
		} else {
			report.Notes = append(report.Notes, fmt.Sprintf("there were failures: the log of the server that was measured is %s", kept))
		}
	}
	if info, ierr := config.ReadServerInfo(place.from); report != nil && ierr == nil && info.Running() {
		report.Notes = append(report.Notes, fmt.Sprintf("another server ran meanwhile, on %s: its machines had their part of this host", place.from))
	}
	return report, err
}

// benchPlace is where servers have their data directories that are measured: in the one of the
// local server, so that what they stand on is the same. One command has it at a time.
type benchPlace struct {
	from config.Home
	lock *os.File // the directory
}

// openBenchPlace takes the place, and ends what a command that was killed has left in it.
func (p *program) openBenchPlace(ctx context.Context) (*benchPlace, error) {
	r, err := p.settings()
	if err != nil {
		return nil, err
	}
	from := config.Home(r.Server().Home)
	err = os.Mkdir(from.Bench(), 0o711)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notBuilt(from)
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		// Machines run as users of their own and pass through, whatever the umask is.
		err = os.Chmod(from.Bench(), 0o711)
	}
	if err != nil {
		return nil, fmt.Errorf("make a place for servers to measure: %w", err)
	}
	lock, err := os.Open(from.Bench())
	if err != nil {
		return nil, fmt.Errorf("take the place for servers to measure: %w", err)
	}
	place := &benchPlace{from, lock}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("another 'ramet bench --driver' measures on %s: wait until it has ended", from), lock.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("take %s: %w", from.Bench(), err), lock.Close())
	}
	if err := p.sweepBenchPlace(ctx, place); err != nil {
		return nil, errors.Join(err, place.close())
	}
	return place, nil
}

func (b *benchPlace) close() error {
	_ = os.Remove(b.from.Bench()) // not when something had to stay in it
	return b.lock.Close()
}

// sweepBenchPlace ends and removes the servers of a command that was killed.
func (p *program) sweepBenchPlace(ctx context.Context, place *benchPlace) error {
	entries, err := os.ReadDir(place.from.Bench())
	if err != nil {
		return fmt.Errorf("look for what was left: %w", err)
	}
	for _, e := range entries {
		home := filepath.Join(place.from.Bench(), e.Name())
		driver, _, _ := strings.Cut(e.Name(), "-")
		if !e.IsDir() || !slices.Contains(benchDrivers(), driver) {
			continue
		}
		settings, err := p.settingsOfBench(home, driver)
		if err != nil {
			return err
		}
		if err := endServer(ctx, config.Home(home)); err != nil {
			return fmt.Errorf("end what was left in %s: %w", home, err)
		}
		if err := p.removeBenchServer(ctx, &benchServer{home: config.Home(home), settings: settings}); err != nil {
			return err
		}
	}
	return nil
}

// endServer ends the server of a data directory, if there is one.
func endServer(ctx context.Context, home config.Home) error {
	info, err := config.ReadServerInfo(home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	proc, err := info.Open()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer proc.Close()
	if err := proc.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return waitEnd(ctx, proc, benchEndTimeout)
}

// benchServer is a server that is started to be measured.
type benchServer struct {
	home     config.Home
	settings *config.Resolved
	child    *childServer // nil: it does not run
}

func (p *program) newBenchServer(place *benchPlace, driver string) (*benchServer, error) {
	dir, err := os.MkdirTemp(place.from.Bench(), driver+"-")
	if err != nil {
		return nil, fmt.Errorf("make a data directory: %w", err)
	}
	s := &benchServer{home: config.Home(dir)}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	if s.settings, err = p.settingsOfBench(dir, driver); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return s, nil
}

// settingsOfBench are a server's on a data directory of its own. Neither the environment nor a
// file has a say in what is not in benchSettings.
func (p *program) settingsOfBench(home, driver string) (*config.Resolved, error) {
	r, err := p.settings()
	if err != nil {
		return nil, err
	}
	values := map[string]string{
		"home": home, "driver": driver, "listen": "127.0.0.1:0", "node": "bench",
		"template": benchTemplate, "templates": benchTemplate,
	}
	for _, v := range r.Values() {
		if slices.Contains(benchSettings(), v.Setting.Key) {
			values[v.Setting.Key] = v.Text
		}
	}
	return config.Load(config.Sources{
		Flags: values, Getenv: func(string) (string, bool) { return "", false }, File: os.DevNull,
	})
}

// startBenchServer starts the server and returns a client of it.
func (p *program) startBenchServer(ctx context.Context, place *benchPlace, s *benchServer) (*client.Client, error) {
	err := p.Engine.ShareTemplate(place.from, s.home, benchTemplate)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, notBuilt(place.from)
	}
	if err != nil {
		return nil, err
	}
	if err := p.prepare(ctx, s.settings.Server()); err != nil {
		return nil, err
	}
	if s.child, err = p.startChild(ctx, s.settings); err != nil {
		return nil, err
	}
	info, err := config.ReadServerInfo(s.home)
	if err != nil {
		return nil, err
	}
	key, err := readKey(s.home.Key())
	if err != nil {
		return nil, err
	}
	return client.New(info.URL, key, "ramet/"+p.Version)
}

func notBuilt(home config.Home) error {
	return fmt.Errorf("the template %s is not built in %s: start a server there first, which builds it ('ramet up'), or name another data directory with --data", benchTemplate, home)
}

// removeBenchServer ends a server with all that it has made, whatever ended ctx.
func (p *program) removeBenchServer(ctx context.Context, s *benchServer) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanTimeout)
	defer cancel()
	if s.child != nil {
		s.child.end(benchEndTimeout)
	}
	if _, err := os.Stat(s.home.Database()); err == nil {
		cfg := s.settings.Server()
		cfg.LogLevel = "error"
		if _, err := p.Engine.EndSandboxes(ctx, cfg); err != nil {
			return fmt.Errorf("what the measured server has left could not be ended, and stays in %s until the next run: %w", s.home, err)
		}
	}
	if err := os.RemoveAll(string(s.home)); err != nil {
		return fmt.Errorf("remove the data directory of the measured server: %w", err)
	}
	return nil
}

// Command ramet is the server and its command line in one program. All of it
// is in internal/cli (commands) and internal/app (the server).
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"

	"ramet.dev/ramet/internal/app"
	"ramet.dev/ramet/internal/bench/compare"
	"ramet.dev/ramet/internal/bench/floor"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/config"
)

// version is set by the linker in releases.
var version string

func main() {
	v := buildVersion()
	os.Exit(cli.Main(cli.Options{
		Args: os.Args[1:], In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Engine: engine{v}, Version: v, Floors: floor.Opener, Comparisons: compare.All,
	}))
}

// engine is the server as the command line uses it.
type engine struct{ version string }

func (engine) Prepare(ctx context.Context, s config.Server) error { return app.Prepare(ctx, s) }

func (engine) Restore(ctx context.Context, s config.Server, backup io.Reader, force bool) error {
	return app.Restore(ctx, s, backup, force)
}

func (e engine) Serve(ctx context.Context, s config.Server) (err error) {
	a, err := app.New(ctx, s, e.version)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return a.Run(ctx)
}

func (engine) ShareTemplate(from, to config.Home, name string) error {
	return app.ShareTemplate(from, to, name)
}

func (engine) EndSandboxes(ctx context.Context, s config.Server) (int, error) {
	return app.EndSandboxes(ctx, s)
}

// buildVersion returns the linker's version, or names the commit of the build.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return "dev"
	}
	return "dev-" + commit[:min(12, len(commit))] + dirty
}

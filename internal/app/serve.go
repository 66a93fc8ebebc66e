package app

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/compat/e2b"
	"ramet.dev/ramet/internal/compat/e2b/envd"
	"ramet.dev/ramet/internal/compat/e2b/interpreter"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/preview"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/tlscert"
)

// newLogger logs to standard error, where a detached server has its log file.
func newLogger(cfg config.Server) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "json" {
		opts.ReplaceAttr = withUnits
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

// withUnits makes a number of milliseconds of each time span, with a name that says so.
func withUnits(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_ms", float64(a.Value.Duration().Microseconds())/1000)
}

// localKeyName is the name of the key in the data directory.
const localKeyName = "local"

// ensureKey makes the key of this machine's command line, or enters the one
// that is in the data directory.
func (a *App) ensureKey(ctx context.Context) error {
	path := a.home().Key()
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		var b [32]byte
		rand.Read(b[:])
		raw = []byte("rmt_" + base64.RawURLEncoding.EncodeToString(b[:]) + "\n")
		err = a.disk.WriteFile("key", path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("the local API key: %w", err)
	}
	_, err = a.control.AddAdminKey(ctx, sandbox.DefaultProject, localKeyName, strings.TrimSpace(string(raw)))
	return err
}

// openAPI binds the address, so that one that is taken is found at once.
func (a *App) openAPI(ctx context.Context) error {
	if err := checkExposure(a.cfg); err != nil {
		return err
	}
	if !config.Loopback(a.cfg.Listen) {
		if err := a.requireKey(ctx); err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "cannot_listen", "cannot listen on %s: %w", a.cfg.Listen, err)
	}
	a.ln = ln
	a.onClose(func() error {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	if !a.cfg.TLS.Enabled() {
		return nil
	}
	if a.certs, err = tlscert.Open(a.cfg.TLS, ln.Addr(), a.home().ACME(), a.log); err != nil {
		return err
	}
	a.onClose(a.certs.Close)
	return nil
}

// checkExposure refuses an address that others can reach when what is said there
// is not protected.
func checkExposure(cfg config.Server) error {
	if config.Loopback(cfg.Listen) {
		return nil
	}
	if cfg.NoAuth {
		return sandbox.Errorf(sandbox.Invalid, "open_without_keys",
			"%s can be reached from other machines: serving it without API keys is refused", cfg.Listen)
	}
	if !cfg.TLS.Enabled() && !cfg.InsecureListen {
		return sandbox.Errorf(sandbox.Invalid, "plain_http",
			"%s can be reached from other machines, and API keys would cross the network in the clear: "+
				"give --tls-cert and --tls-key, or --acme-domain; behind a proxy that speaks TLS listen on 127.0.0.1, or allow it with --insecure-listen", cfg.Listen)
	}
	return nil
}

// requireKey refuses to be reachable by others while nobody but this machine has a key.
func (a *App) requireKey(ctx context.Context) error {
	projects, err := a.control.Projects(ctx, sandbox.Key{Admin: true})
	if err != nil {
		return err
	}
	for _, p := range projects {
		keys, err := a.control.Keys(ctx, p.Name)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if !k.Admin {
				return nil
			}
		}
	}
	return sandbox.Errorf(sandbox.Invalid, "no_keys",
		"%s can be reached from other machines and no API key exists yet: start on 127.0.0.1 first and run 'ramet keys create'", a.cfg.Listen)
}

// laterTemplates are those that are built while the server serves.
func (a *App) laterTemplates() []string {
	return slices.DeleteFunc(slices.Clone(a.cfg.Templates), func(name string) bool {
		return image.Canonical(name) == image.Canonical(a.cfg.Template)
	})
}

// URL is where the server is reached from this host.
func (a *App) URL() string { return config.ListenURL(a.ln.Addr().String(), a.cfg.TLS.Enabled()) }

// previewDomain is where the ports of sandboxes are reached. Without a setting there is one
// for those on this host only.
func (a *App) previewDomain() string {
	if a.cfg.Domain != "" {
		return a.cfg.Domain
	}
	_, port, err := net.SplitHostPort(a.ln.Addr().String())
	if err != nil {
		return ""
	}
	return net.JoinHostPort("localhost", port)
}

// surfaces is what the listener serves.
type surfaces struct {
	api         *httpapi.Server
	envd        *envd.Server
	interpreter *interpreter.Server
	preview     *preview.Proxy
	handler     http.Handler
}

// openSurfaces makes the surfaces, which all have the keys, the log and the limits of the native
// one.
func (a *App) openSurfaces(ctx context.Context, api *httpapi.Server) (*surfaces, error) {
	seed, err := a.records.Secret(ctx, "traffic")
	if err != nil {
		return nil, err
	}
	s := &surfaces{
		api:         api,
		envd:        envd.New(envd.Config{Control: a.control, Log: a.log}),
		interpreter: interpreter.New(interpreter.Config{Control: a.control, Log: a.log}),
	}
	cfg := e2b.Config{
		Control: a.control, Front: api, Log: a.log, Seed: seed, Domain: a.cfg.Domain, Template: a.cfg.Template,
		Envd: s.envd, Interpreter: s.interpreter,
		Preview: func(w http.ResponseWriter, r *http.Request, p e2b.Port) {
			s.preview.Serve(w, r, preview.Target{Project: p.Project, ID: p.ID, Port: p.Port})
		},
	}
	if config.Loopback(a.cfg.Listen) {
		cfg.Domain = a.previewDomain() // others would look for it on their own machines
	}
	compat := e2b.New(cfg)
	s.preview = preview.New(preview.Config{
		Control: a.control, Log: a.log,
		Fail: func(w http.ResponseWriter, r *http.Request, t preview.Target, err error) {
			compat.PreviewFailed(w, r, e2b.Port{Project: t.Project, ID: t.ID, Port: t.Port}, err)
		},
	})
	s.handler = api.Around(compat.Route(api.Native()))
	return s, nil
}

// drain ends the streams that are open.
func (s *surfaces) drain() {
	s.api.Drain()
	s.envd.Drain()
	s.interpreter.Drain()
	s.preview.Drain()
}

// Run serves until ctx ends, then lets open calls finish for a while.
func (a *App) Run(ctx context.Context) error {
	api := httpapi.New(httpapi.Config{
		Control: a.control, Log: a.log, NoAuth: a.cfg.NoAuth, Metrics: a.metrics, Tracing: a.tracing,
		// It can change: the first build of a template finds out whether KVM works.
		Isolation: a.driver.Isolation,
		Info: httpapi.Info{
			Version: a.version, Driver: a.driver.Name(),
			Region: a.cfg.Region, Node: a.cfg.Node, PID: os.Getpid(),
			PreviewDomain: a.previewDomain(),
		},
		Capacity: a.worker.Capacity, Regions: a.cfg.Regions, PublicURL: a.cfg.PublicURL,
		CORSOrigins: a.cfg.CORSOrigins,
	})
	all, err := a.openSurfaces(ctx, api)
	if err != nil {
		return err
	}
	defer all.envd.Close()
	server := api.HTTPServer()
	server.Handler = all.handler
	serve := func() error { return server.Serve(a.ln) }
	info, err := config.ThisProcess(a.URL(), a.version)
	if err != nil {
		return err
	}
	if a.certs != nil {
		server.TLSConfig, info.LocalCert = a.certs.Config(), a.certs.LocalCert()
		serve = func() error { return server.ServeTLS(a.ln, "", "") }
	}
	if err := info.Write(a.home()); err != nil {
		return err
	}
	defer os.Remove(a.home().ServerInfo())
	if slices.Contains(a.cfg.CORSOrigins, config.AnyOrigin) {
		a.log.Warn("pages of every origin may call the API, as cors_origins is *: only their API key is in the way", "setting", "cors_origins")
	}
	a.log.Info("serving", "url", a.URL(), "driver", a.driver.Name(), "isolation", a.driver.Isolation(), "version", a.version)
	if notice := a.isolation().Notice(); notice != "" {
		a.log.Warn(notice, "isolation", a.isolation())
	}

	if err := a.worker.StartPool(); err != nil {
		return err
	}
	a.worker.StartWaiting()
	failed := make(chan error, 1)
	go func() { failed <- serve() }()
	if a.certs != nil {
		a.certs.Start() // authorities call the listener, which is open
	}
	if err := a.control.BuildInBackground(a.laterTemplates()); err != nil {
		return err
	}
	if err := tellManager("READY=1\nSTATUS=Serving at " + a.URL()); err != nil {
		a.log.Warn("tell the service manager that the server is ready", "err", err)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	if err := tellManager("STOPPING=1"); err != nil {
		a.log.Warn("tell the service manager that the server ends", "err", err)
	}
	a.log.Info("shutting down")
	all.drain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		server.Close() // streams that would go on for ever
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

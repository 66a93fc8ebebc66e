package clitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/tlscert"
)

// Engine is the server for tests of 'up' and 'down'. It serves a fake for real,
// on the address that it is told.
//
// RAMET_TEST_FAIL makes it fail: "prepare" in Prepare, "serve" at once in
// Serve, "gvisor" at once with that driver, "exec" in every call that runs code, and
// "deaf" makes it run and not answer.
type Engine struct{}

// Prepare reports one step.
func (Engine) Prepare(ctx context.Context, s config.Server) error {
	done := progress.Step(ctx, "build root filesystem")
	if os.Getenv("RAMET_TEST_FAIL") == "prepare" {
		return errors.New("the package mirror does not answer")
	}
	done()
	return nil
}

// ShareTemplate finds the template in every data directory that has a directory of templates.
func (Engine) ShareTemplate(from, to config.Home, name string) error {
	if _, err := os.Stat(from.Templates()); err != nil {
		return sandbox.Errorf(sandbox.NotFound, "template_not_found", "there is no template %s", name)
	}
	return os.Mkdir(to.Templates(), 0o755)
}

// EndSandboxes claims to have ended two.
func (Engine) EndSandboxes(context.Context, config.Server) (int, error) { return 2, nil }

// Serve serves a fake until ctx ends.
func (Engine) Serve(ctx context.Context, s config.Server) error {
	fmt.Fprintf(os.Stderr, "starting with %s %s %s\n", s.Driver, s.Region, s.LogFormat)
	if os.Getenv("RAMET_TEST_FAIL") == "serve" {
		return errors.New("another server holds the lock")
	}
	if s.Driver == "gvisor" && os.Getenv("RAMET_TEST_FAIL") == s.Driver {
		return errors.New("there is no gvisor here")
	}
	files := filepath.Join(s.Home, "files")
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(config.Home(s.Home).Key(), []byte(Key+"\n"), 0o600); err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	info, err := config.ThisProcess(config.ListenURL(l.Addr().String(), s.TLS.Enabled()), "1.2.3-test")
	if err != nil {
		return err
	}
	fake := New(files)
	if s.Driver == "gvisor" {
		fake.OnGVisor()
	}
	handler := fake.Handler()
	if os.Getenv("RAMET_TEST_FAIL") == "exec" {
		next := handler
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/exec") {
				fail(w, 503, "guest_unreachable", "the sandbox does not answer")
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	serve := func() error { return srv.Serve(l) }
	if s.TLS.Enabled() {
		certs, err := tlscert.Open(s.TLS, l.Addr(), config.Home(s.Home).ACME(), slog.Default())
		if err != nil {
			return errors.Join(err, l.Close())
		}
		srv.TLSConfig, info.LocalCert = certs.Config(), certs.LocalCert()
		serve = func() error { return srv.ServeTLS(l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve() }()
	if err := info.Write(config.Home(s.Home)); err != nil {
		return errors.Join(err, srv.Close(), <-served)
	}
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "ending in order")
	err = srv.Close()
	<-served
	return errors.Join(err, os.Remove(config.Home(s.Home).ServerInfo()))
}

// Restore takes the backup of the fake server, and nothing else.
func (Engine) Restore(_ context.Context, s config.Server, backup io.Reader, force bool) error {
	b, err := io.ReadAll(backup)
	if err != nil || string(b) != Backup {
		return errors.New("this is not a whole backup")
	}
	if _, err := os.Stat(config.Home(s.Home).Database()); err == nil && !force {
		return errors.New("there are records already")
	}
	return errors.Join(os.MkdirAll(s.Home, 0o755), os.WriteFile(config.Home(s.Home).Database(), b, 0o600))
}

// Command fakeserver serves the whole HTTP API on machines that are none: their programs
// and their Python run on this host, as its user, and their files are in a temporary
// folder. It is what the tests of the SDKs talk to, and is part of no package:
// whoever has its key has this host's user.
//
// It prints one line of JSON, {"url", "key", "admin_key", "pid"}, when it serves, and ends, leaving
// nothing behind, by SIGINT, by SIGTERM, or when its standard input ends, so that
// it does not outlive the tests that started it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/guest/reap"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// stopLimit bounds the end: open calls, machines, records.
const stopLimit = 20 * time.Second

type options struct {
	listen    string
	keepAlive time.Duration
	quota     int
	origins   string
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to serve at; only loopback")
	flag.DurationVar(&o.keepAlive, "keep-alive", 10*time.Second, "pause after which a silent stream gets an empty line")
	flag.IntVar(&o.quota, "max-sandboxes", 0, "sandboxes that a project may have at one time; 0 is no limit")
	flag.StringVar(&o.origins, "cors-origins", "", "origins whose web pages may call, with commas between them, as browsers write them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the program: a read of standard input cannot be called off
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that counts
		cancel()
	}()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fakeserver:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	listener, err := listen(o.listen)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ramet-fake-")
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newServer(ctx, o, dir, "localhost:"+portOf(listener))
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, s.close()) }()

	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	if err := s.announce(ctx, out, "http://"+listener.Addr().String()); err != nil {
		return errors.Join(err, s.http.Close())
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.api.Drain()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	if err := s.http.Shutdown(end); err != nil {
		return errors.Join(fmt.Errorf("end the open calls: %w", err), s.http.Close())
	}
	return nil
}

// listen refuses addresses that others can reach: a key of this server is a shell on this host.
func listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the address %s: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("the address %s is not a loopback address", address)
	}
	return net.Listen("tcp", address)
}

func portOf(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String()) // an address of a listener has one
	return port
}

type server struct {
	store    *store.Store
	control  *control.Control
	machines *controltest.Machines
	reaper   *reap.Reaper
	api      *httpapi.Server
	http     *http.Server
}

func newServer(ctx context.Context, o options, dir, domain string) (*server, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	database := filepath.Join(dir, "ramet.db")
	records, err := store.Open(ctx, database)
	if err != nil {
		return nil, err
	}
	s := &server{store: records, machines: controltest.NewMachines(filepath.Join(dir, "instances")), reaper: reap.New()}
	s.machines.NewExec = execIn(s.reaper, log)
	// The control outlives the calls of its clients, and ends by Close.
	s.control, err = control.New(context.WithoutCancel(ctx), control.Config{
		Store: records, Machines: s.machines, Templates: controltest.NewTemplates(), Log: log, Region: "local", Node: "fake",
		Isolation:   func() sandbox.Isolation { return sandbox.IsolationEmulated },
		IdleTimeout: 5 * time.Minute, SweepInterval: 200 * time.Millisecond, Quota: sandbox.Quota{Sandboxes: o.quota},
	})
	if err != nil {
		s.reaper.Close()
		return nil, errors.Join(err, records.Close())
	}
	s.api = httpapi.New(httpapi.Config{
		Control: s.control, Log: log, KeepAlive: o.keepAlive,
		CORSOrigins: strings.FieldsFunc(o.origins, func(r rune) bool { return r == ',' }),
		Info: httpapi.Info{
			Version: "fake", Driver: "fake", Isolation: sandbox.IsolationEmulated, Region: "local", Node: "fake", PID: os.Getpid(),
			PreviewDomain: domain,
		},
	})
	s.http = &http.Server{Handler: s.api.Handler(), ReadHeaderTimeout: 10 * time.Second}
	return s, nil
}

// announce makes the keys and says where the server is.
func (s *server) announce(ctx context.Context, out io.Writer, url string) error {
	_, key, err := s.control.CreateKey(ctx, sandbox.DefaultProject, "tests")
	if err != nil {
		return err
	}
	// An admin's key is one that the server is given, see control.AddAdminKey.
	admin := "rmt_admin_" + key
	if _, err := s.control.AddAdminKey(ctx, sandbox.DefaultProject, "admin", admin); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(map[string]any{"url": url, "key": key, "admin_key": admin, "pid": os.Getpid()})
}

func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	err := s.control.Close(ctx)
	s.machines.StopAll()
	s.reaper.Close()
	return errors.Join(err, s.store.Close())
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// readyTimeout bounds the time from the start of a prepared server until it
// answers. Taking over many running machines is the longest part of it.
const readyTimeout = 90 * time.Second

// maxLog is the size at which the next start puts the log of a detached server
// aside, in bytes. One old log is kept.
const maxLog = 16 << 20

type upOptions struct {
	detach   bool
	prepared bool
}

func (p *program) upCommand() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a server on this machine",
		Long: `Start a server: check the host, build the template and its snapshot if they are
not there yet (a few minutes the first time), and serve the API.

Without --detach it stays in the foreground, logs to standard error and ends in
order at Ctrl-C. With --detach it returns when the server answers; the log is
server.log in the data directory. When a server runs already, 'up' says so and
does nothing.

The server makes an API key for this machine's command line in the data
directory. It refuses to listen on an address that others can reach while no
other key exists (see 'ramet keys create'), and with plain HTTP, unless
--insecure-listen allows that behind a proxy.

With --tls-cert and --tls-key it serves HTTPS, and takes over a changed pair at
once. With --acme-domain it gets certificates and renews them by itself; for
that the authority must reach it at port 443 of that name, or with --acme-http
at port 80. Commands on this machine need no settings for either.

Where KVM works machines are isolated by hardware; elsewhere they run in gVisor,
and 'up' says so. With --min-isolation the server refuses to start with less.

Web pages of other origins may call the API when --cors-origins names theirs.`,
		Example: `  ramet up --detach
  ramet up --data /srv/ramet --listen 127.0.0.1:8080
  ramet up -d --driver gvisor --min-isolation gvisor
  ramet up -d --listen :7070 --tls-cert /srv/tls.crt --tls-key /srv/tls.key
  ramet up -d --listen :443 --acme-domain ramet.example.com
  ramet up -d --cors-origins https://app.example.com,http://localhost:5173
  RAMET_LOG_FORMAT=json ramet up 2>ramet.log`,
		Args: none,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return p.up(ctx, o)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "start the server in the background and return when it answers")
	cmd.Flags().BoolVar(&o.prepared, "prepared", false, "the host and the template are prepared; just serve")
	cmd.Flags().MarkHidden("prepared")
	addSettingFlags(cmd.Flags(), "listen", "domain", "tls_cert", "tls_key", "acme_domain", "acme_email", "acme_ca", "acme_ca_root", "acme_http",
		"insecure_listen", "no_auth", "cors_origins", "driver", "accel", "min_isolation", "template", "templates", "pool_size", "pool_shapes", "waiting_machines", "allow_private", "guest_ca",
		"region", "regions", "public_url", "node", "max_sandboxes", "max_memory_mb", "max_disk_mb",
		"idle_timeout", "retain_hibernated", "retain_spaces", "retain_checkpoints", "memory_reserve_mb", "disk_reserve_mb",
		"memory_overcommit", "disk_overcommit", "log_format", "log_level")
	for flag, values := range map[string][]string{
		"driver": {"auto", "qemu", "gvisor"}, "accel": {"auto", "kvm", "tcg"}, "min-isolation": isolations(),
		"log-format": {"text", "json"}, "log-level": {"debug", "info", "warn", "error"},
	} {
		cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, flag := range []string{"tls-cert", "tls-key", "acme-ca-root"} {
		cmd.MarkFlagFilename(flag, "pem", "crt", "key")
	}
	cmd.RegisterFlagCompletionFunc("template", p.completeTemplates)
	return cmd
}

func (p *program) up(ctx context.Context, o upOptions) error {
	r, err := p.settings()
	if err != nil {
		return err
	}
	s := r.Server()
	running, err := p.alreadyUp(ctx, r)
	if running || err != nil {
		return err
	}
	if !o.prepared {
		if err := p.prepare(ctx, s); err != nil {
			return err
		}
	}
	if o.detach {
		return p.startDetached(ctx, r)
	}
	return p.serve(ctx, s, o.prepared)
}

// alreadyUp reports whether a server uses the data directory, and says so.
func (p *program) alreadyUp(ctx context.Context, r *config.Resolved) (bool, error) {
	s := r.Server()
	info, err := config.ReadServerInfo(config.Home(s.Home))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Running() {
		return false, nil
	}
	c, err := p.clientOf(info)
	if err != nil {
		return true, err
	}
	one, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := c.Health(one); err != nil {
		return true, fmt.Errorf("a server runs on %s (pid %d) but does not answer at %s (%w): look at %s, or end it with 'ramet down'",
			s.Home, info.PID, info.URL, err, config.Home(s.Home).Log())
	}
	fmt.Fprintf(p.Out, "A server runs already: %s (pid %d, data in %s).\n", info.URL, info.PID, s.Home)
	for _, v := range r.Values() {
		if v.Setting.Key == "listen" && v.Source != "default" && config.ListenURL(v.Text, s.TLS.Enabled()) != info.URL {
			fmt.Fprintf(p.Out, "It does not listen on %s: 'ramet down' first, to start it anew there.\n", v.Text)
		}
	}
	return true, nil
}

func (p *program) prepare(ctx context.Context, s config.Server) error {
	d := newDrawer(p.Err)
	defer d.Close()
	if s.LogLevel == "info" {
		s.LogLevel = "warn" // the steps are shown; their log lines would only disturb them
	}
	if err := p.Engine.Prepare(progress.With(ctx, d.Event), s); err != nil {
		return fmt.Errorf("the server cannot start: %w", err)
	}
	return nil
}

// serve serves in this process and announces when it is ready. The child of a
// detached start announces nothing; its parent watches it.
func (p *program) serve(ctx context.Context, s config.Server, quiet bool) error {
	ready, cancel := context.WithCancel(ctx)
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		if quiet {
			return
		}
		if info, err := p.waitReady(ready, config.Home(s.Home), os.Getpid()); err == nil {
			fmt.Fprintf(p.Err, "ramet: ready at %s, data in %s; Ctrl-C ends the server\n", info.URL, s.Home)
		}
	}()
	err := p.Engine.Serve(ctx, s)
	cancel()
	<-announced
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil // it was asked to end, and ended in order
	}
	return err
}

// waitReady waits until the server that is process pid has said where it is,
// and answers there.
func (p *program) waitReady(ctx context.Context, home config.Home, pid int) (config.ServerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if info, err := config.ReadServerInfo(home); err == nil && info.PID == pid {
			c, err := p.clientOf(info)
			if err != nil {
				return info, err
			}
			if c.Health(ctx) == nil {
				return info, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return config.ServerInfo{}, ctx.Err()
		}
	}
}

// startDetached starts this program again as a server that outlives it.
func (p *program) startDetached(ctx context.Context, r *config.Resolved) error {
	child, err := p.startChild(ctx, r)
	if err != nil {
		return err
	}
	// From here on it lives without us; what waits for it ends with this process.
	return p.welcome(ctx, config.Home(r.Server().Home), child.pid)
}

// openLog opens the log of a detached server for appending.
func openLog(home config.Home) (*os.File, error) {
	// Machines run as users of their own and must get through to their files.
	if err := os.MkdirAll(string(home), 0o711); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if st, err := os.Stat(home.Log()); err == nil && st.Size() > maxLog {
		if err := os.Rename(home.Log(), home.Log()+".1"); err != nil {
			return nil, fmt.Errorf("put the old log aside: %w", err)
		}
	}
	f, err := os.OpenFile(home.Log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, nil
}

// printLogTail prints the last lines that were logged since offset start.
func (p *program) printLogTail(home config.Home, start int64) {
	f, err := os.Open(home.Log())
	if err != nil {
		return
	}
	defer f.Close()
	const most = 8 << 10
	if st, err := f.Stat(); err == nil && st.Size()-start > most {
		start = st.Size() - most
	}
	b := make([]byte, most)
	n, _ := f.ReadAt(b, start)
	if n == 0 {
		return
	}
	lines := strings.Split(strings.TrimRight(string(b[:n]), "\n"), "\n")
	if len(lines) > 20 {
		lines = lines[len(lines)-20:]
	}
	fmt.Fprintf(p.Err, "The end of %s:\n", home.Log())
	for _, l := range lines {
		fmt.Fprintf(p.Err, "  %s\n", clean(l))
	}
}

// welcome says what runs now and what to type next.
func (p *program) welcome(ctx context.Context, home config.Home, pid int) error {
	info, err := config.ReadServerInfo(home)
	if err != nil {
		return err
	}
	machines, notice := "", ""
	p.resolved = nil // server.json may now give another URL
	if c, err := p.connect(); err == nil {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if i, err := c.Info(one); err == nil {
			machines = ", machines: " + i.Driver + "/" + i.Isolation
			notice = sandbox.Isolation(i.Isolation).Notice()
		}
	}
	fmt.Fprintf(p.Out, "Ramet runs at %s (pid %d%s).\n", info.URL, pid, machines)
	fmt.Fprintf(p.Out, "Data and log are in %s.\n\n", home)
	if notice != "" {
		fmt.Fprintf(p.Out, "%s\n\n", notice)
	}
	fmt.Fprint(p.Out, `Next:
  ramet run 'print(6 * 7)'    run Python in a sandbox made for this call
  ramet create                make a sandbox that stays, and print its id
  ramet status                what runs here
  ramet down                  stop the server; sandboxes live on
`)
	return nil
}

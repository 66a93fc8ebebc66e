package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/wstream"
)

// maxForwarded bounds the connections that 'port' forwards at a time: as many as a sandbox takes. More
// wait to be accepted.
const maxForwarded = 128

type portOptions struct {
	listen string
	asJSON bool
	noWake bool
}

func (p *program) portCommand() *cobra.Command {
	var o portOptions
	cmd := &cobra.Command{
		Use:     "port ID PORT",
		Aliases: []string{"forward"},
		Short:   "Forward a port of a sandbox to this machine",
		Long: `Forward a TCP port of a sandbox to this machine, until Ctrl-C. It reaches services
that listen on the sandbox's loopback address too.

It listens on the same port of 127.0.0.1, or on a free one when that is taken;
--listen says where instead. Every connection goes through the server's API, so
the sandbox may be on another machine, with its network closed. While a connection
is open the sandbox is in use, and does not hibernate for being idle.`,
		Example: `  ramet port 3f2a 8000
  ramet port 3f2a 5432 --listen 127.0.0.1:15432
  ramet port 3f2a 8888 --listen 0.0.0.0:8888  # for others too`,
		Args: exactly(2, "ID PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := watchSignals(awake(cmd.Context(), o.noWake))
			defer w.stop()
			return w.explain(p.forwardPort(w.ctx, o, args[0], args[1]))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return p.completePorts(cmd, args[0])
			}
			return p.completeOneID(cmd, args, toComplete)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "", "address of this machine to listen on, with or without a port (default 127.0.0.1:PORT)")
	f.BoolVar(&o.asJSON, "json", false, "say as JSON where it listens")
	nameValue(f, "listen", "ADDR:PORT")
	cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	addNoWake(cmd, &o.noWake)
	return cmd
}

// forwardJSON is what --json says.
type forwardJSON struct {
	Address string `json:"address"`
	Sandbox string `json:"sandbox"`
	Port    int    `json:"port"`
}

func parsePort(s string) (int, error) {
	port, err := strconv.Atoi(s)
	if err != nil || port < 1 || port > 65535 {
		return 0, usageErrorf("%q is not a port; it is a number from 1 to 65535", s)
	}
	return port, nil
}

// listenAddress returns where to listen, and whether another port of it will do too.
func listenAddress(flag string, port int) (address string, any bool, err error) {
	host, local := "127.0.0.1", ""
	switch {
	case flag == "":
	case strings.Contains(flag, ":") && !isIPv6(flag):
		if host, local, err = net.SplitHostPort(flag); err != nil {
			return "", false, usageErrorf("--listen %s: %w", flag, err)
		}
		if host == "" {
			host = "127.0.0.1" // all addresses have to be asked for
		}
	case strings.Trim(flag, "0123456789") == "":
		local = flag
	default:
		host = flag
	}
	if local == "" {
		return net.JoinHostPort(host, strconv.Itoa(port)), true, nil
	}
	if n, err := strconv.Atoi(local); err != nil || n < 0 || n > 65535 {
		return "", false, usageErrorf("--listen %s: the port has to be a number from 0 to 65535", flag)
	}
	return net.JoinHostPort(host, local), false, nil
}

func isIPv6(s string) bool { return net.ParseIP(s) != nil }

// listenFor listens where it should, or on a free port where it may.
func listenFor(ctx context.Context, flag string, port int) (net.Listener, error) {
	address, other, err := listenAddress(flag, port)
	if err != nil {
		return nil, err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil && other && (errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES)) {
		host, _, _ := net.SplitHostPort(address) // we have joined it
		l, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	return l, err
}

func (p *program) forwardPort(ctx context.Context, o portOptions, name, number string) error {
	port, err := parsePort(number)
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	id, err := resolveID(ctx, c, name)
	if err != nil {
		return err
	}
	open, err := c.Ports(ctx, id)
	if err != nil {
		return err
	}
	l, err := listenFor(ctx, o.listen, port)
	if err != nil {
		return err
	}
	if o.asJSON {
		err = printJSON(p.Out, forwardJSON{Address: l.Addr().String(), Sandbox: id, Port: port})
	} else {
		_, err = fmt.Fprintf(p.Out, "%s is port %d of %s\n", l.Addr(), port, id)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	f := &forward{p: p, c: c, id: id, port: port, noted: map[string]time.Time{}}
	if !slices.Contains(open, port) {
		f.note("port_closed", fmt.Sprintf("nothing listens on port %d of the sandbox yet; connections work when something does", port))
	}
	return f.serve(ctx, l)
}

// forward is the work of one 'port'.
type forward struct {
	p    *program
	c    *client.Client
	id   string
	port int

	mu    sync.Mutex
	noted map[string]time.Time // guarded by mu; what was said, by code
}

// quietFor is how long the same trouble is not told again.
const quietFor = 10 * time.Second

// note tells what is wrong with connections, but not for each of them.
func (f *forward) note(code, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.noted[code]; ok && time.Since(last) < quietFor {
		return
	}
	f.noted[code] = time.Now()
	fmt.Fprintln(f.p.Err, "ramet: "+clean(message))
}

// serve forwards connections until ctx ends or the sandbox is gone.
func (f *forward) serve(ctx context.Context, l net.Listener) error {
	ctx, end := context.WithCancelCause(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer end(nil) // before the wait
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	free := make(chan struct{}, maxForwarded)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return errors.Join(fmt.Errorf("listen: %w", err), l.Close())
		}
		conns.Go(func() {
			defer func() { <-free }()
			if err := f.pass(ctx, localStream{conn.(*net.TCPConn)}); err != nil {
				end(err)
			}
		})
	}
}

// pass forwards one connection. Its error ends all.
func (f *forward) pass(ctx context.Context, conn localStream) error {
	ws, err := f.c.ConnectPort(ctx, f.id, f.port)
	if err != nil {
		conn.Abort()
		return f.explain(ctx, err)
	}
	err = wstream.Relay(ctx, ws, conn, wstream.Options{})
	var closed *wstream.ClosedError
	if errors.As(err, &closed) && closed.Reason != wstream.ReasonReset {
		f.note(closed.Reason, closed.Error())
	}
	return nil // either end may break its own connection
}

// explain tells trouble that may pass, and returns what will not.
func (f *forward) explain(ctx context.Context, err error) error {
	var api *client.Error
	switch {
	case ctx.Err() != nil:
		return nil
	case !errors.As(err, &api):
		f.note("unreachable", err.Error())
	case api.Code == "port_closed" || api.Status == http.StatusTooManyRequests || api.Status >= 500:
		f.note(api.Code, api.Message)
	default:
		return err
	}
	return nil
}

// localStream is a connection on this machine.
type localStream struct{ *net.TCPConn }

// Abort resets it.
func (s localStream) Abort() {
	_ = s.SetLinger(0) // fails only when it is closed already
	_ = s.Close()
}

func (p *program) completePorts(cmd *cobra.Command, name string) ([]string, cobra.ShellCompDirective) {
	c, ctx, cancel, err := p.completing(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	var out []string
	if id, err := resolveID(ctx, c, name); err == nil {
		ports, _ := c.Ports(client.WithoutWake(ctx), id) // a Tab wakes nothing
		for _, port := range ports {
			out = append(out, strconv.Itoa(port))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

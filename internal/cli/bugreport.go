package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/doctor"
)

// logTail is how much of the end of the server's log goes into a report, in bytes.
const logTail = 1 << 20

func (p *program) bugreportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "bugreport [FILE]",
		Short: "Collect what helps to find a mistake into one file",
		Long: `Collect what helps to find a mistake into a tar.gz: the checks of 'ramet doctor',
the status, settings, versions, templates, sandboxes and their events, what this
machine is, and the end of the server's log. It works without a server too.

No secrets go in: settings that are secret are left out, environments are never
shown by the server, and whatever looks like an API key or a password in a URL is
blacked out. Still, look through it before you give it away: it has ids, metadata
and paths.`,
		Example: `  ramet bugreport
  ramet bugreport /tmp/ramet-report.tar.gz`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("unexpected argument %q", args[1])
			}
			return nil
		},
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			path := "ramet-bugreport-" + time.Now().UTC().Format("20060102-150405") + ".tar.gz"
			if len(args) == 1 {
				path = args[0]
			}
			report, err := p.bugreport(ctx)
			if err != nil {
				return err
			}
			if err := saveWhole(path, bytes.NewReader(report)); err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.Out, path)
			return err
		}),
	}
}

// bugreport makes the report. What cannot be had is noted in it and is no error.
func (p *program) bugreport(ctx context.Context) ([]byte, error) {
	r, err := p.settings()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	tw := tar.NewWriter(zw)
	var problems []string
	for _, part := range p.reportParts(r) {
		one, cancel := context.WithTimeout(ctx, 30*time.Second)
		b, err := part.make(one)
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			problems = append(problems, part.name+": "+p.sentence(err))
			continue
		}
		if err := addPart(tw, part.name, b); err != nil {
			return nil, err
		}
	}
	for _, line := range problems {
		fmt.Fprintf(p.Err, "ramet: left out: %s\n", clean(line))
	}
	b, err := json.MarshalIndent(problems, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(addPart(tw, "left-out.json", b), tw.Close(), zw.Close()); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return out.Bytes(), nil
}

func addPart(tw *tar.Writer, name string, b []byte) error {
	b = blackOut(b)
	err := tw.WriteHeader(&tar.Header{Name: "ramet-bugreport/" + name, Mode: 0o600, Size: int64(len(b)), ModTime: time.Now()})
	if err == nil {
		_, err = tw.Write(b)
	}
	return err
}

// secrets are what must not leave the machine: our keys, bearer tokens, passwords in URLs.
var secrets = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`rmt_[A-Za-z0-9_-]{12,}`), "rmt_(removed)"},
	{regexp.MustCompile(`(?i)(bearer )[A-Za-z0-9._~+/=-]+`), "${1}(removed)"},
	{regexp.MustCompile(`(://)[^/@\s"]+:[^/@\s"]+@`), "${1}(removed)@"},
}

func blackOut(b []byte) []byte {
	for _, s := range secrets {
		b = s.pattern.ReplaceAll(b, []byte(s.instead))
	}
	return b
}

// reportPart is a file of a report.
type reportPart struct {
	name string
	make func(context.Context) ([]byte, error)
}

func (p *program) reportParts(r *config.Resolved) []reportPart {
	asJSON := func(make func(context.Context) (any, error)) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			v, err := make(ctx)
			if err != nil {
				return nil, err
			}
			return json.MarshalIndent(v, "", "  ")
		}
	}
	server := func(ask func(context.Context, *client.Client) (any, error)) func(context.Context) ([]byte, error) {
		return asJSON(func(ctx context.Context) (any, error) {
			c, err := p.connect()
			if err != nil {
				return nil, err
			}
			return ask(ctx, c)
		})
	}
	return []reportPart{
		{"version.json", asJSON(func(context.Context) (any, error) {
			return map[string]string{"version": p.Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}, nil
		})},
		{"doctor.json", asJSON(func(ctx context.Context) (any, error) {
			return doctor.Run(ctx, doctor.Host{
				Run: doctor.RunProgram, LookPath: exec.LookPath, Getenv: os.Getenv,
				EUID: os.Geteuid(), Arch: runtime.GOARCH, HTTP: &http.Client{Timeout: 5 * time.Second},
			}, r.Server()), nil
		})},
		{"settings.json", asJSON(func(context.Context) (any, error) { return reportedSettings(r), nil })},
		{"status.json", server(func(ctx context.Context, c *client.Client) (any, error) {
			s := statusJSON{URL: c.URL()}
			err := p.fillStatus(ctx, c, &s)
			return s, err
		})},
		{"usage.json", server(func(ctx context.Context, c *client.Client) (any, error) { return c.Usage(ctx) })},
		{"projects.json", server(func(ctx context.Context, c *client.Client) (any, error) { return c.Projects(ctx) })},
		{"sandboxes.json", server(func(ctx context.Context, c *client.Client) (any, error) {
			list := []any{}
			for sb, err := range c.Sandboxes(ctx, client.ListFilter{Status: "any"}) {
				if err != nil {
					return nil, err
				}
				if list = append(list, sb); len(list) == 1000 {
					break
				}
			}
			return list, nil
		})},
		{"events.json", server(func(ctx context.Context, c *client.Client) (any, error) {
			list := []any{}
			for e, err := range c.Events(ctx, client.EventFilter{Since: time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}) {
				if err != nil {
					return nil, err
				}
				if list = append(list, e); len(list) > 5000 {
					list = list[1:]
				}
			}
			return list, nil
		})},
		{"metrics.txt", func(ctx context.Context) ([]byte, error) {
			c, err := p.connect()
			if err != nil {
				return nil, err
			}
			body, err := c.ServerMetrics(ctx)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			return io.ReadAll(io.LimitReader(body, 4<<20))
		}},
		{"server.log", func(context.Context) ([]byte, error) { return tail(config.Home(r.Server().Home).Log()) }},
		{"meminfo.txt", func(context.Context) ([]byte, error) { return os.ReadFile("/proc/meminfo") }},
		{"cpuinfo.txt", func(context.Context) ([]byte, error) { return os.ReadFile("/proc/cpuinfo") }},
		{"kernel.txt", func(context.Context) ([]byte, error) { return os.ReadFile("/proc/version") }},
		{"os-release.txt", func(context.Context) ([]byte, error) { return os.ReadFile("/etc/os-release") }},
	}
}

// reportedSettings are all but the secret ones.
func reportedSettings(r *config.Resolved) map[string]string {
	out := map[string]string{}
	for _, v := range r.Values() {
		if !v.Setting.Secret {
			out[v.Setting.Key] = v.Text + " (" + v.Source + ")"
		}
	}
	return out
}

// tail reads the end of a file.
func tail(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-logTail), logTail))
}

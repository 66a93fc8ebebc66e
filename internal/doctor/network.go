package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/internal/config"
)

func checkProxy(_ context.Context, h Host, _ config.Server) finding {
	var set []string
	for _, name := range []string{"http_proxy", "https_proxy", "all_proxy"} {
		v := h.Getenv(name)
		if v == "" {
			name = strings.ToUpper(name)
			v = h.Getenv(name)
		}
		if v != "" {
			set = append(set, name)
			if u, err := url.Parse(v); err != nil || u.Host == "" {
				return finding{Warn, name + " is set but is not a URL", "set it to http://HOST:PORT"}
			}
		}
	}
	if set == nil {
		return ok("no proxy is set")
	}
	return ok("%s: used by downloads of this host; sandboxes dial by themselves", strings.Join(set, ", "))
}

func checkCertificates(_ context.Context, h Host, s config.Server) finding {
	if s.GuestCA == "none" {
		return ok("none are added to sandboxes (guest_ca: none)")
	}
	if s.GuestCA != "host" {
		if _, err := os.Stat(s.GuestCA); err != nil {
			return finding{Fail, "the certificates for sandboxes cannot be read: " + err.Error(), "correct the setting guest_ca"}
		}
		return ok("sandboxes trust those of %s as well", s.GuestCA)
	}
	const dir = "/usr/local/share/ca-certificates"
	n := 0
	err := filepath.WalkDir(filepath.Join(h.Root, dir), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(d.Name(), ".crt") {
			n++
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return finding{Warn, fmt.Sprintf("%s cannot be read: %v", dir, err), ""}
	}
	if n == 0 {
		return ok("none were added to this host")
	}
	return ok("%d added to this host; sandboxes trust them as well (guest_ca: host)", n)
}

// aptHelper downloads with all of apt's own settings: proxies, certificates,
// credentials and mirror lists. A plain HTTP request would know none of them.
const aptHelper = "/usr/lib/apt/apt-helper"

func checkMirror(ctx context.Context, h Host, _ config.Server) finding {
	const fix = "see that 'apt-get update' works on this host; templates are built from the same mirrors"
	if _, err := h.LookPath("apt-get"); err != nil {
		return finding{Fail, "this host has no apt, from whose mirrors templates are built", "use Debian 12 or newer"}
	}
	out, err := h.Run(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)dists/$(RELEASE)/InRelease", "Created-By: Packages")
	if err != nil {
		return finding{Fail, "apt does not tell its mirrors: " + lastLine(out), fix}
	}
	uri := ""
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); strings.Contains(line, "://") {
			uri = line
			break
		}
	}
	if uri == "" {
		return finding{Fail, "apt has no package mirror", "add one to /etc/apt/sources.list"}
	}
	if strings.HasPrefix(uri, "file:") || strings.HasPrefix(uri, "cdrom:") {
		return ok("packages come from %s", uri)
	}
	dir, err := os.MkdirTemp("", "ramet-doctor-")
	if err != nil {
		return finding{Warn, "the mirror was not tried: " + err.Error(), ""}
	}
	defer os.RemoveAll(dir)
	out, err = h.Run(ctx, aptHelper, "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=8", "-o", "Acquire::https::Timeout=8",
		"-o", "APT::Sandbox::User=root", "download-file", uri, filepath.Join(dir, "InRelease"))
	if err != nil {
		return finding{Fail, "the package mirror does not answer: " + lastLine(out), fix}
	}
	return ok("the package mirror answers")
}

// lastLine returns the last line of a program's output that says something.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return "it said nothing"
	}
	return last
}

func checkServer(ctx context.Context, h Host, s config.Server) finding {
	info, err := config.ReadServerInfo(config.Home(s.Home))
	if errors.Is(err, fs.ErrNotExist) {
		return ok("no server runs on %s", s.Home)
	}
	if err != nil {
		return finding{Warn, err.Error(), "remove the file when no server runs"}
	}
	if !info.Running() {
		return finding{
			Warn, fmt.Sprintf("the server that ran as pid %d ended without saying so", info.PID),
			"its log is " + config.Home(s.Home).Log() + "; the next 'ramet up' cleans up after it",
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, info.URL+"/v1/healthz", nil)
	if err != nil {
		return finding{Warn, err.Error(), ""}
	}
	resp, err := h.HTTP.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return finding{
			Fail, fmt.Sprintf("the server (pid %d) runs but does not answer at %s", info.PID, info.URL),
			"look at " + config.Home(s.Home).Log(),
		}
	}
	return ok("server %s answers at %s (pid %d)", info.Version, info.URL, info.PID)
}

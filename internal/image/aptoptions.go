package image

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// aptOption is one setting of apt, such as Acquire::http::Proxy.
type aptOption struct{ Name, Value string }

// String writes the option in the format of apt.conf.
func (o aptOption) String() string { return fmt.Sprintf("%s %q;", o.Name, o.Value) }

// hostOptions matches the settings of the host that decide how packages are
// fetched: proxies, certificates, retries, and whether the age of the mirror's index counts.
var hostOptions = regexp.MustCompile(`^Acquire::(https?::.*|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date|Max-FutureTime)$`)

// hostAptOptions asks the host's apt for its settings.
func hostAptOptions(ctx context.Context) ([]aptOption, error) {
	var out bytes.Buffer
	err := program{Name: "apt-config", Args: []string{"dump"}, Stdout: &out}.run(ctx)
	if err != nil {
		return nil, err
	}
	return parseAptConfig(out.String()), nil
}

// parseAptConfig picks hostOptions from the output of apt-config dump.
func parseAptConfig(dump string) []aptOption {
	var options []aptOption
	sc := bufio.NewScanner(strings.NewReader(dump))
	for sc.Scan() {
		name, value, ok := strings.Cut(sc.Text(), " ")
		value, quoted := strings.CutPrefix(value, `"`)
		value, closed := strings.CutSuffix(value, `";`)
		if !ok || !quoted || !closed || value == "" || strings.ContainsAny(value, "\"\\") {
			continue
		}
		// A helper program that finds a proxy is the host's own.
		if hostOptions.MatchString(name) && !strings.Contains(strings.ToLower(name), "auto-detect") {
			options = append(options, aptOption{name, value})
		}
	}
	return options
}

// forGuest returns the options that make sense in a guest too: not those that name
// files of the host, a proxy on the host's loopback or one with a password.
func forGuest(options []aptOption) []aptOption {
	var kept []aptOption
	for _, o := range options {
		if strings.HasPrefix(o.Value, "/") || strings.Contains(o.Name, "Ca") && strings.Contains(o.Name, "https") {
			continue
		}
		if u, err := url.Parse(o.Value); err == nil && u.Host != "" {
			addr, err := netip.ParseAddr(u.Hostname())
			if u.User != nil || u.Hostname() == "localhost" || err == nil && addr.IsLoopback() {
				continue
			}
		}
		kept = append(kept, o)
	}
	return kept
}

func optionLines(options []aptOption) []string {
	lines := make([]string, 0, len(options))
	for _, o := range options {
		lines = append(lines, o.String())
	}
	slices.Sort(lines)
	return lines
}

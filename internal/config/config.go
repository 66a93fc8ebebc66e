// Package config owns Ramet's settings: their names, where a value may come
// from, and what it means. A setting comes from a flag, else a RAMET_*
// environment variable, else a config file, else its default, and every value
// remembers which of these it was.
//
// It also names the files of the data directory (home.go) and describes the
// running server in it (server.json, serverfile.go). It starts nothing and
// talks to nobody. Start reading at settings.go, the one table of settings.
package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// Server is what a server is started with.
type Server struct {
	// Home is the data directory, absolute.
	Home string
	// Listen is the address of the API, host:port.
	Listen string
	// Domain is where the ports of sandboxes are reached, below <port>-<id>; "" for
	// localhost, on a loopback address.
	Domain string
	// NoAuth serves a loopback address without API keys.
	NoAuth bool
	// TLS says how the API is served over TLS.
	TLS TLS
	// InsecureListen allows plain HTTP on an address that others can reach.
	InsecureListen bool
	// Driver starts the machines: "qemu", "gvisor" or "auto".
	Driver string
	// Accel is "auto" (KVM where a kernel really boots under it), "kvm" or "tcg".
	Accel string
	// MinIsolation is the least that the machines may be isolated by; "" for no matter what.
	MinIsolation sandbox.Isolation
	// LogFormat is "text" or "json"; LogLevel is "debug", "info", "warn" or "error".
	LogFormat string
	LogLevel  string
	// AllowPrivate lists private ranges that guests may reach, such as a
	// company's package mirror. All others stay closed.
	AllowPrivate []netip.Prefix
	// GuestCA says which certificates guests trust besides their own: "host"
	// (those that were added to this host), "none", or the path of a PEM file.
	GuestCA string
	// Region and Node are stamped on every sandbox.
	Region string
	Node   string
	// Regions are servers of other regions, by name; calls that name one are passed on to it.
	Regions map[string]*url.URL
	// CORSOrigins are the origins whose web pages may call the API, as browsers write them;
	// AnyOrigin alone is all of them.
	CORSOrigins []string
	// PublicURL is where clients reach this server directly; may be empty.
	PublicURL string
	// Template is the template that is built at the start and used when a
	// create names none.
	Template string
	// Templates are built too, in the background, while the server serves.
	Templates []string
	// WaitingMachines is how many processes of machines are started ahead.
	WaitingMachines int
	// PoolSize is how many machines of each shape are kept ready; 0 for none,
	// negative: as free memory allows.
	PoolSize int
	// PoolKeepWarm is how long a machine of the pool waits before it is used again, to
	// keep it in memory; 0 is the default. No setting: tests shorten it.
	PoolKeepWarm time.Duration
	// PoolShapes are kept ready besides the default one.
	PoolShapes []sandbox.Shape
	// MaxSandboxes, MaxMemoryMB and MaxDiskMB limit each project whose own quota
	// does not say. 0 is no limit.
	MaxSandboxes, MaxMemoryMB, MaxDiskMB int
	// IdleTimeout is after how long without a call a sandbox hibernates that does not
	// say so itself. 0 is never.
	IdleTimeout time.Duration
	// Retain says how long what is kept by itself is kept. 0 is for ever.
	Retain Retention
	// MemoryReserveMB and DiskReserveMB of the host are not promised to sandboxes;
	// the rest is, as many times as the factors say.
	MemoryReserveMB, DiskReserveMB   int
	MemoryOvercommit, DiskOvercommit float64
}

// TLS says where the API's certificate comes from: a pair of files, or ACME. The
// zero value is plain HTTP.
type TLS struct {
	// CertFile and KeyFile are PEM files, absolute.
	CertFile, KeyFile string
	// ACMEDomains are the names of certificates that come from the authority ACMECA.
	ACMEDomains []string
	// ACMEEmail is who the authority may write to; may be empty.
	ACMEEmail string
	// ACMECA is the URL of the authority's directory.
	ACMECA string
	// ACMECARoot is a PEM file of those who signed that URL's certificate; empty
	// for the authorities that the host trusts.
	ACMECARoot string
	// ACMEHTTP is where the HTTP challenge is answered; empty: nowhere.
	ACMEHTTP string
}

// Enabled reports whether the API is served over TLS.
func (t TLS) Enabled() bool { return t.CertFile != "" || len(t.ACMEDomains) > 0 }

// Retention is for how long sandboxes that hibernate, Spaces and checkpoints are kept.
type Retention struct{ Hibernated, Spaces, Checkpoints time.Duration }

// Client is what a command needs to reach a server.
type Client struct {
	// URL is the server's base URL, without a final slash.
	URL string
	// APIKey is empty when no setting gives one; the key file of the data
	// directory is the next place to look.
	APIKey string
	// CA is a PEM file of the authorities that a server's certificate may come
	// from; empty for those that the host trusts.
	CA string
	// Home is the data directory whose key and server.json a local client uses.
	Home string
}

// Loopback reports whether addr, a host:port, is only reachable from this host.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// ListenURL returns the URL under which a local client reaches a server that
// listens on addr, with TLS when secure.
func ListenURL(addr string, secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return scheme + addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || (err == nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
		if err == nil && ip.Is6() {
			host = "::1"
		}
	}
	return scheme + net.JoinHostPort(host, port)
}

// The check functions return what is wrong with a value in words that follow
// the setting's name.

func checkListen(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("is %q, but must be HOST:PORT, such as 127.0.0.1:7070", v)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("is %q, but a port is a number from 0 to 65535", v)
	}
	return nil
}

func checkURL(v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("is %q, but must be a URL, such as http://127.0.0.1:7070", v)
	}
	return nil
}

func checkBool(v string) error {
	if _, err := strconv.ParseBool(v); err != nil {
		return fmt.Errorf("is %q, but must be true or false", v)
	}
	return nil
}

// maxCount bounds settings that are numbers; sums of a few still fit.
const maxCount = 1 << 40

func checkCount(v string) error {
	if n, err := strconv.Atoi(v); err != nil || n < 0 || n > maxCount {
		return fmt.Errorf("is %q, but must be a whole number, 0 or more", v)
	}
	return nil
}

func checkFactor(v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0.1 && f <= 100) {
		return fmt.Errorf("is %q, but must be a number from 0.1 to 100", v)
	}
	return nil
}

// maxTime is the longest time that can be set: ten years.
const maxTime = 3660 * 24 * time.Hour

// ParseTime reads a time such as 90s, 12h or 30d, of a second to ten years. "never" and "0" are 0.
func ParseTime(v string) (time.Duration, error) {
	if v == "never" || v == "0" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if n, isDays := strings.CutSuffix(v, "d"); isDays {
		var days int
		days, err = strconv.Atoi(n)
		d = time.Duration(min(max(days, 0), int(2*maxTime/(24*time.Hour)))) * 24 * time.Hour
	}
	if err != nil || d < time.Second || d > maxTime {
		return 0, fmt.Errorf("is %q, but must be a time such as 12h or 30d of at most %dd, or never", v, int(maxTime/(24*time.Hour)))
	}
	return d, nil
}

func checkTime(v string) error {
	_, err := ParseTime(v)
	return err
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		for _, a := range allowed {
			if v == a {
				return nil
			}
		}
		return fmt.Errorf("is %q, but must be one of: %s", v, strings.Join(allowed, ", "))
	}
}

func checkPath(v string) error {
	if v == "" || strings.ContainsRune(v, 0) {
		return fmt.Errorf("is %q, but must be a path", v)
	}
	return nil
}

func checkMinIsolation(v string) error {
	if _, err := sandbox.ParseIsolation(v); err != nil {
		return fmt.Errorf("is %q, but must be kvm, gvisor or emulated, or empty for no matter what", v)
	}
	return nil
}

func checkGuestCA(v string) error {
	if v == "host" || v == "none" || filepath.IsAbs(v) {
		return nil
	}
	return fmt.Errorf("is %q, but must be host, none, or the absolute path of a PEM file", v)
}

func checkAbsFile(v string) error {
	// Empty unsets what a weaker place has set.
	if v == "" || (filepath.IsAbs(v) && !strings.ContainsRune(v, 0)) {
		return nil
	}
	return fmt.Errorf("is %q, but must be the absolute path of a PEM file", v)
}

// checkName accepts the names of nodes, regions and templates.
func checkName(v string) error {
	ok := v != "" && len(v) <= 63
	for i, c := range []byte(v) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || (c != '-' && c != '_' && c != '.')) {
			ok = false
		}
	}
	if !ok {
		return fmt.Errorf("is %q, but must be 1 to 63 lower-case letters, digits, '-', '_' or '.', and begin with a letter or digit", v)
	}
	return nil
}

// checkNames accepts a list of names, separated by commas, or an empty one.
func checkNames(v string) error {
	for _, name := range parseNames(v) {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func parseNames(v string) []string {
	var names []string
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// poolAuto is the text of a pool size that free memory decides.
const poolAuto = "auto"

// maxPool bounds a pool; each machine of it is a process.
const maxPool = 1024

func parsePoolSize(v string) (int, error) {
	if v == poolAuto {
		return -1, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > maxPool {
		return 0, fmt.Errorf("is %q, but must be auto, or a number from 0 to %d", v, maxPool)
	}
	return n, nil
}

func checkPoolSize(v string) error {
	_, err := parsePoolSize(v)
	return err
}

// parseShapes reads vCPUs x memory [x disk], both in MiB, one or more.
func parseShapes(v string) ([]sandbox.Shape, error) {
	var out []sandbox.Shape
	for _, f := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
		n := []int{0, 0, sandbox.DefaultDiskMB}
		parts := strings.Split(f, "x")
		ok := len(parts) == 2 || len(parts) == 3
		for i := range parts {
			if !ok {
				break
			}
			var err error
			n[i], err = strconv.Atoi(parts[i])
			ok = err == nil
		}
		s := sandbox.Shape{VCPUs: n[0], MemoryMB: n[1], DiskMB: n[2]}
		if !ok || !slices.Contains(sandbox.AllowedVCPUs, s.VCPUs) ||
			s.MemoryMB < sandbox.MinMemoryMB || s.MemoryMB > sandbox.MaxMemoryMB || s.MemoryMB%sandbox.MemoryStepMB != 0 ||
			s.DiskMB < sandbox.DefaultDiskMB || s.DiskMB > sandbox.MaxDiskMB {
			return nil, fmt.Errorf("has %q, but a shape is VCPUSxMEMORY or VCPUSxMEMORYxDISK in MiB that a sandbox can have, such as 4x2048", f)
		}
		if s != sandbox.DefaultShape() && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

func checkShapes(v string) error {
	_, err := parseShapes(v)
	return err
}

func parsePrefixes(v string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, f := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(f)
		if err != nil {
			ip, errIP := netip.ParseAddr(f)
			if errIP != nil {
				return nil, fmt.Errorf("has %q, but must be addresses or ranges, such as 10.1.2.0/24,192.0.2.7", f)
			}
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func checkPrefixes(v string) error {
	_, err := parsePrefixes(v)
	return err
}

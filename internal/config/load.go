package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"ramet.dev/ramet/internal/sandbox"
)

// Value is a setting's value and where it came from.
type Value struct {
	Setting Setting
	Text    string
	// Source is "default", "flag --listen", "environment RAMET_LISTEN", the
	// path of a config file, or that of server.json.
	Source string
}

// Resolved holds the value of every setting.
type Resolved struct {
	values []Value
	// Files are the config files that were read, the strongest last.
	Files []string
}

// Sources says where Load looks.
type Sources struct {
	// Flags holds the values of the flags that the user gave, by setting key.
	Flags map[string]string
	// Getenv looks up an environment variable.
	Getenv func(string) (string, bool)
	// File, when not empty, is the one config file to read; it must exist.
	File string
	// UserDir is the home directory of the user, for ~/.config. It may be empty.
	UserDir string
	// Hostname is the default of the setting "node".
	Hostname string
}

// SystemFile is the config file of the host.
const SystemFile = "/etc/ramet/config.yaml"

// UserFile returns the config file of a user: the one of XDG_CONFIG_HOME or ~/.config.
func (s Sources) UserFile() string {
	if dir, ok := s.Getenv("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "ramet", "config.yaml")
	}
	if s.UserDir == "" {
		return ""
	}
	return filepath.Join(s.UserDir, ".config", "ramet", "config.yaml")
}

// Load resolves every setting. It fails on a value that is wrong wherever it
// came from, and on a config file that cannot be read or has an unknown key:
// a misspelt setting that is silently ignored is worse than an error.
func Load(src Sources) (*Resolved, error) {
	r := &Resolved{}
	fromFile, err := r.readFiles(src)
	if err != nil {
		return nil, err
	}
	for _, s := range Settings() {
		v := Value{Setting: s, Text: s.Default, Source: "default"}
		if fv, ok := fromFile[s.Key]; ok {
			v.Text, v.Source = fv.Text, fv.Source
		}
		// An empty variable counts as unset, as with most programs.
		if env, ok := src.Getenv(s.Env()); ok && env != "" {
			v.Text, v.Source = env, "environment "+s.Env()
		}
		if f, ok := src.Flags[s.Key]; ok {
			v.Text, v.Source = f, "flag --"+s.Flag()
		}
		if s.check != nil && v.Source != "default" {
			if err := s.check(v.Text); err != nil {
				return nil, fmt.Errorf("the setting %s (%s) %w", s.Key, v.Source, err)
			}
		}
		r.values = append(r.values, v)
	}
	if err := r.fill(src); err != nil {
		return nil, err
	}
	return r, nil
}

// fill works out the values that depend on others or on the host.
func (r *Resolved) fill(src Sources) error {
	home := r.value("home")
	abs, err := filepath.Abs(home.Text)
	if err != nil {
		return fmt.Errorf("make the data directory %s absolute: %w", home.Text, err)
	}
	home.Text = abs

	if node := r.value("node"); node.Text == "" {
		node.Text = nodeName(src.Hostname)
		node.Source = "the host's name"
	}
	server := r.Server()
	tls := server.TLS
	if err := tls.check(); err != nil {
		return err
	}
	if err := server.checkPages(); err != nil {
		return err
	}
	u := r.value("url")
	if u.Text == "" {
		u.Text = ListenURL(r.value("listen").Text, tls.Enabled())
		// The local server tells where it really listens.
		if info, err := ReadServerInfo(Home(abs)); err == nil && checkURL(info.URL) == nil {
			u.Text, u.Source = info.URL, Home(abs).ServerInfo()
		}
	}
	u.Text = strings.TrimRight(u.Text, "/")
	return nil
}

// nodeName makes a node's name of a host's name.
func nodeName(host string) string {
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '-'
	}, name)
	name = strings.Trim(name, "-")
	if checkName(name) != nil {
		return "node"
	}
	return name
}

// readFiles reads the config files, weakest first.
func (r *Resolved) readFiles(src Sources) (map[string]Value, error) {
	explicit := src.File
	if env, ok := src.Getenv("RAMET_CONFIG"); explicit == "" && ok {
		explicit = env
	}
	files := []string{SystemFile, src.UserFile()}
	if explicit != "" {
		files = []string{explicit}
	}
	out := map[string]Value{}
	for _, path := range files {
		if path == "" {
			continue
		}
		values, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) && explicit == "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		r.Files = append(r.Files, path)
		for k, v := range values {
			out[k] = Value{Text: v, Source: path}
		}
	}
	return out, nil
}

// maxConfigFile bounds a config file, in bytes.
const maxConfigFile = 1 << 20

func readFile(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the config file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the config file: %w", err)
	}
	if len(b) > maxConfigFile {
		return nil, fmt.Errorf("the config file %s is larger than 1 MiB", path)
	}
	return parseFile(path, b)
}

// parseFile reads a YAML mapping of settings to scalars or lists of scalars.
func parseFile(path string, b []byte) (map[string]string, error) {
	var doc map[string]yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("the config file %s is not a YAML mapping of settings: %w", path, err)
	}
	known := map[string]bool{}
	for _, s := range Settings() {
		known[s.Key] = true
	}
	keys := make([]string, 0, len(doc))
	for k := range doc {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := map[string]string{}
	for _, k := range keys {
		node := doc[k]
		if !known[k] {
			return nil, fmt.Errorf("%s:%d: there is no setting %q; 'ramet config show' lists them", path, node.Line, k)
		}
		text, err := scalarText(&node)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s %w", path, node.Line, k, err)
		}
		out[k] = text
	}
	return out, nil
}

func scalarText(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", errors.New("has no value")
		}
		return n.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, 0, len(n.Content))
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return "", errors.New("must be a list of plain values")
			}
			parts = append(parts, c.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("must be a plain value or a list of them")
}

func (r *Resolved) value(key string) *Value {
	for i := range r.values {
		if r.values[i].Setting.Key == key {
			return &r.values[i]
		}
	}
	panic("config: no setting " + key) // a mistake in this package
}

// Values returns every setting's value, in the table's order.
func (r *Resolved) Values() []Value { return append([]Value(nil), r.values...) }

// Server returns the server's part. Load has checked every value.
func (r *Resolved) Server() Server {
	text := func(key string) string { return r.value(key).Text }
	flag := func(key string) bool { on, _ := strconv.ParseBool(text(key)); return on }
	domains, _ := parseDomains(text("acme_domain"))
	prefixes, _ := parsePrefixes(text("allow_private"))
	regions, _ := ParseRegions(text("regions"))
	origins, _ := parseOrigins(text("cors_origins"))
	poolSize, _ := parsePoolSize(text("pool_size"))
	shapes, _ := parseShapes(text("pool_shapes"))
	count := func(key string) int { n, _ := strconv.Atoi(text(key)); return n }
	factor := func(key string) float64 { f, _ := strconv.ParseFloat(text(key), 64); return f }
	span := func(key string) time.Duration { d, _ := ParseTime(text(key)); return d }
	return Server{
		PoolSize: poolSize, PoolShapes: shapes, WaitingMachines: count("waiting_machines"),
		Home: text("home"), Listen: text("listen"), Domain: text("domain"), NoAuth: flag("no_auth"), InsecureListen: flag("insecure_listen"),
		CORSOrigins: origins,
		TLS: TLS{
			CertFile: text("tls_cert"), KeyFile: text("tls_key"), ACMEDomains: domains, ACMEEmail: text("acme_email"),
			ACMECA: text("acme_ca"), ACMECARoot: text("acme_ca_root"), ACMEHTTP: text("acme_http"),
		},
		Driver: text("driver"), Accel: text("accel"), MinIsolation: sandbox.Isolation(text("min_isolation")),
		LogFormat: text("log_format"), LogLevel: text("log_level"),
		AllowPrivate: prefixes, GuestCA: text("guest_ca"),
		Region: text("region"), Regions: regions, PublicURL: text("public_url"), Node: text("node"), Template: text("template"), Templates: parseNames(text("templates")),
		MaxSandboxes: count("max_sandboxes"), MaxMemoryMB: count("max_memory_mb"), MaxDiskMB: count("max_disk_mb"),
		IdleTimeout: span("idle_timeout"),
		Retain:      Retention{Hibernated: span("retain_hibernated"), Spaces: span("retain_spaces"), Checkpoints: span("retain_checkpoints")},

		MemoryReserveMB: count("memory_reserve_mb"), DiskReserveMB: count("disk_reserve_mb"),
		MemoryOvercommit: factor("memory_overcommit"), DiskOvercommit: factor("disk_overcommit"),
	}
}

// Client returns the part that commands need to reach a server.
func (r *Resolved) Client() Client {
	return Client{URL: r.value("url").Text, APIKey: r.value("api_key").Text, CA: r.value("ca").Text, Home: r.value("home").Text}
}

// FlagArgs returns the flags that give another process of this program exactly
// these server settings, whatever its environment and files say.
func (r *Resolved) FlagArgs() []string {
	var args []string
	for _, v := range r.values {
		if v.Setting.Scope != ForClient && v.Setting.Flag() != "" {
			args = append(args, "--"+v.Setting.Flag()+"="+v.Text)
		}
	}
	return args
}

package config

// Setting is one row of the table of settings.
type Setting struct {
	// Key is the name in a config file; with dashes for underscores it is the
	// flag, in capitals and after RAMET_ the environment variable.
	Key string
	// Default is used when nothing else gives a value. Empty with dynamic set
	// means that the loader works it out.
	Default string
	// Arg names the value in the help of the flag, such as DIR.
	Arg string
	// Help is one line, as the help of the flag.
	Help string
	// Scope says who reads it: the server, the client commands or both.
	Scope Scope
	// Secret values are never printed.
	Secret bool
	// List says that the value is a list with commas between its parts, whose
	// flag may be given several times.
	List bool

	flag  string // when it is not Key with dashes
	check func(string) error
}

// Scope says who reads a setting.
type Scope int

// The scopes.
const (
	ForBoth Scope = iota
	ForServer
	ForClient
)

// Flag returns the name of the setting's flag, without dashes in front, or ""
// when it has none: secrets do not belong on a command line, where every user
// of the host sees them.
func (s Setting) Flag() string {
	if s.Secret {
		return ""
	}
	if s.flag != "" {
		return s.flag
	}
	b := []byte(s.Key)
	for i := range b {
		if b[i] == '_' {
			b[i] = '-'
		}
	}
	return string(b)
}

// Env returns the name of the setting's environment variable.
func (s Setting) Env() string {
	b := []byte("RAMET_" + s.Key)
	for i := range b {
		if b[i] >= 'a' && b[i] <= 'z' {
			b[i] -= 'a' - 'A'
		}
	}
	return string(b)
}

// DefaultHome is the data directory of a server that was told nothing else.
const DefaultHome = "/var/lib/ramet"

// DefaultListen is the address of a server that was told nothing else.
const DefaultListen = "127.0.0.1:7070"

// DefaultACMECA is where certificates come from when nothing else is set.
const DefaultACMECA = "https://acme-v02.api.letsencrypt.org/directory"

// Settings lists every setting, in the order in which they are shown.
func Settings() []Setting {
	return []Setting{
		{
			Key: "home", Arg: "DIR", flag: "data", Default: DefaultHome, check: checkPath, Scope: ForBoth,
			Help: "data directory: records, templates, sandboxes, the local API key",
		},
		{
			Key: "url", Arg: "URL", Default: "", check: checkURL, Scope: ForClient,
			Help: "URL of the server (default: the local server's)",
		},
		{
			Key: "api_key", Default: "", Secret: true, Scope: ForClient,
			Help: "API key (default: the local server's own, in its data directory)",
		},
		{
			Key: "ca", Arg: "FILE", Default: "", check: checkAbsFile, Scope: ForClient,
			Help: "PEM file of the authorities that may sign the server's certificate (default: those that this host trusts)",
		},
		{
			Key: "listen", Arg: "ADDR", Default: DefaultListen, check: checkListen, Scope: ForServer,
			Help: "address of the API, HOST:PORT",
		},
		{
			Key: "no_auth", Default: "false", check: checkBool, Scope: ForServer,
			Help: "serve without API keys; only on a loopback address",
		},
		{
			Key: "cors_origins", Arg: "ORIGINS", Default: "", List: true, check: checkOrigins, Scope: ForServer,
			Help: "origins whose web pages may call the API, such as https://app.example.com; * is every page of the web, for which only the API key is in the way",
		},
		{
			Key: "domain", Arg: "NAME", Default: "", check: checkDomain, Scope: ForServer,
			Help: "domain below which the ports of sandboxes are reached, as <port>-<id>.NAME (default on a loopback address: localhost)",
		},
		{
			Key: "tls_cert", Arg: "FILE", Default: "", check: checkAbsFile, Scope: ForServer,
			Help: "serve HTTPS with this certificate and its chain, a PEM file; read again when it changes",
		},
		{
			Key: "tls_key", Arg: "FILE", Default: "", check: checkAbsFile, Scope: ForServer,
			Help: "the private key of tls_cert, a PEM file",
		},
		{
			Key: "acme_domain", Arg: "NAMES", Default: "", List: true, check: checkDomains, Scope: ForServer,
			Help: "serve HTTPS with certificates for these names, gotten by ACME; their use means that you agree to the terms of the authority",
		},
		{
			Key: "acme_email", Arg: "ADDRESS", Default: "", check: checkEmail, Scope: ForServer,
			Help: "address that the ACME authority may write to",
		},
		{
			Key: "acme_ca", Arg: "URL", Default: DefaultACMECA, check: checkACMECA, Scope: ForServer,
			Help: "directory of the ACME authority",
		},
		{
			Key: "acme_ca_root", Arg: "FILE", Default: "", check: checkAbsFile, Scope: ForServer,
			Help: "PEM file of the authorities that signed the certificate of acme_ca, for a private one",
		},
		{
			Key: "acme_http", Arg: "ADDR", Default: "", check: checkOptionalListen, Scope: ForServer,
			Help: "answer ACME's HTTP challenge on this address, such as :80 (default: the TLS-ALPN challenge, on the address of the API)",
		},
		{
			Key: "insecure_listen", Default: "false", check: checkBool, Scope: ForServer,
			Help: "serve plain HTTP on an address that others can reach, as behind a proxy that speaks TLS",
		},
		{
			Key: "driver", Arg: "NAME", Default: "auto", check: oneOf("auto", "qemu", "gvisor"), Scope: ForServer,
			Help: "what runs the machines: qemu (virtual machines), gvisor (kernels in user space, at the CPU's speed without KVM), or auto: qemu where KVM works, else gvisor",
		},
		{
			Key: "accel", Arg: "NAME", Default: "auto", check: oneOf("auto", "kvm", "tcg"), Scope: ForServer,
			Help: "auto (KVM where a kernel really boots under it), kvm, or tcg (emulation)",
		},
		{
			Key: "min_isolation", Arg: "LEVEL", Default: "", check: checkMinIsolation, Scope: ForServer,
			Help: "the least that may isolate sandboxes: kvm, gvisor or emulated; with less the server does not start (default: no matter what)",
		},
		{
			Key: "template", Arg: "NAME", Default: "default", check: checkName, Scope: ForBoth,
			Help: "template to build at the start and for sandboxes that name none",
		},
		{
			Key: "templates", Arg: "NAMES", Default: "default,code-interpreter-v1", check: checkNames, Scope: ForServer,
			Help: "templates to have; those besides --template are built in the background while the server serves",
		},
		{
			Key: "pool_size", Arg: "COUNT", Default: poolAuto, check: checkPoolSize, Scope: ForServer,
			Help: "machines that are kept ready for creates, of each shape: a number, 0 for none, or auto (by free memory)",
		},
		{
			Key: "pool_shapes", Arg: "SHAPES", Default: "", check: checkShapes, Scope: ForServer,
			Help: "shapes to keep ready besides the default one: VCPUSxMEMORY in MiB, such as 4x2048,1x512",
		},
		{
			Key: "waiting_machines", Arg: "COUNT", Default: "2", check: checkCount, Scope: ForServer,
			Help: "processes that are started ahead for forks and wakes; each takes some 30 MB of memory until it is used",
		},
		{
			Key: "allow_private", Arg: "RANGES", Default: "", check: checkPrefixes, Scope: ForServer,
			Help: "private ranges that sandboxes may reach, such as 10.1.2.0/24,10.9.0.7",
		},
		{
			Key: "guest_ca", Arg: "WHICH", Default: "host", check: checkGuestCA, Scope: ForServer,
			Help: "certificates that sandboxes trust besides their own: host (those added to this host), none, or a PEM file",
		},
		{
			Key: "region", Arg: "NAME", Default: "local", check: checkName, Scope: ForServer,
			Help: "region that is stamped on every sandbox",
		},
		{
			Key: "regions", Arg: "NAME=URL", Default: "", List: true, check: checkRegions, Scope: ForServer,
			Help: "servers of other regions, to which calls that name one of them are passed on",
		},
		{
			Key: "public_url", Arg: "URL", Default: "", check: checkOptionalURL, Scope: ForServer,
			Help: "where clients reach this server directly; told in the answer of a create",
		},
		{
			Key: "node", Arg: "NAME", Default: "", check: checkName, Scope: ForServer,
			Help: "name of this node (default: the host's name)",
		},
		{
			Key: "max_sandboxes", Arg: "N", Default: "0", check: checkCount, Scope: ForServer,
			Help: "sandboxes that a project may have at one time; 0 is no limit",
		},
		{
			Key: "max_memory_mb", Arg: "MB", Default: "0", check: checkCount, Scope: ForServer,
			Help: "memory that the sandboxes of a project may have together, in MiB; 0 is no limit",
		},
		{
			Key: "max_disk_mb", Arg: "MB", Default: "0", check: checkCount, Scope: ForServer,
			Help: "disk that the sandboxes of a project may have together, in MiB; 0 is no limit",
		},
		{
			Key: "idle_timeout", Arg: "TIME", Default: "5m", check: checkTime, Scope: ForServer,
			Help: "hibernate a sandbox after this time without a call, unless it says otherwise; or never",
		},
		{
			Key: "retain_hibernated", Arg: "TIME", Default: "30d", check: checkTime, Scope: ForServer,
			Help: "how long a sandbox that hibernates is kept: a time such as 30d, or never to delete it",
		},
		{
			Key: "retain_spaces", Arg: "TIME", Default: "30d", check: checkTime, Scope: ForServer,
			Help: "how long a Space is kept",
		},
		{
			Key: "retain_checkpoints", Arg: "TIME", Default: "90d", check: checkTime, Scope: ForServer,
			Help: "how long a checkpoint is kept",
		},
		{
			Key: "memory_reserve_mb", Arg: "MB", Default: "1024", check: checkCount, Scope: ForServer,
			Help: "memory of this host that is not promised to sandboxes, in MiB",
		},
		{
			Key: "disk_reserve_mb", Arg: "MB", Default: "2048", check: checkCount, Scope: ForServer,
			Help: "disk of this host that is not promised to sandboxes, in MiB",
		},
		{
			Key: "memory_overcommit", Arg: "FACTOR", Default: "1", check: checkFactor, Scope: ForServer,
			Help: "how many times the memory is promised; above 1 sandboxes may end each other",
		},
		{
			Key: "disk_overcommit", Arg: "FACTOR", Default: "1", check: checkFactor, Scope: ForServer,
			Help: "how many times the disk is promised; above 1 sandboxes may fill it up",
		},
		{
			Key: "log_format", Arg: "FORMAT", Default: "text", check: oneOf("text", "json"), Scope: ForServer,
			Help: "text, or json for one object a line",
		},
		{
			Key: "log_level", Arg: "LEVEL", Default: "info", check: oneOf("debug", "info", "warn", "error"), Scope: ForServer,
			Help: "debug, info, warn or error",
		},
	}
}

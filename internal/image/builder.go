package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/progress"
	"ramet.dev/ramet/internal/sandbox"
)

// Config is what New needs.
type Config struct {
	// TemplatesDir is where builds go: <home>/templates. It is made if it is missing.
	TemplatesDir string
	// AgentPath is the static ramet-agent program. It is read at each build.
	AgentPath string
	// Arch is Debian's name of the architecture; empty for that of this program.
	Arch   string
	Logger *slog.Logger
	// MinFreeMB is how much must be free before a root filesystem is built;
	// 0 means 3072.
	MinFreeMB int64
	// Disk makes the changes of files that have to survive a power cut.
	Disk *durable.Disk

	// For tests.
	etcApt string
	caDir  string
	build  func(*rootBuild) func(context.Context) error
}

// Builder builds templates and finds those that are built. It is safe for
// concurrent use, also by several processes on one directory.
type Builder struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex
	flights map[string]*flight // by name and hash
}

// New returns a Builder. It does not touch the disk.
func New(cfg Config) (*Builder, error) {
	dir, err := filepath.Abs(cfg.TemplatesDir)
	if err != nil {
		return nil, err
	}
	// The path goes into configuration files of apt.
	if strings.ContainsAny(dir, " \t\n\"'\\;{}:,") {
		return nil, sandbox.Errorf(sandbox.Invalid, "bad_data_dir", "the data directory %q has spaces or other special characters in its path", dir)
	}
	cfg.TemplatesDir = dir
	if cfg.Arch == "" {
		cfg.Arch = runtime.GOARCH
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MinFreeMB == 0 {
		cfg.MinFreeMB = 3072
	}
	if cfg.etcApt == "" {
		cfg.etcApt = "/etc/apt"
	}
	if cfg.caDir == "" {
		cfg.caDir = hostCADir
	}
	if cfg.build == nil {
		cfg.build = func(b *rootBuild) func(context.Context) error { return b.run }
	}
	return &Builder{cfg: cfg, log: cfg.Logger, flights: map[string]*flight{}}, nil
}

// plan is a build with all its inputs read.
type plan struct {
	def       Definition
	keys      keys
	inputs    rootInputs
	sources   []source
	options   []aptOption
	ca        []byte
	agentHash string
}

func (b *Builder) plan(ctx context.Context, def Definition) (*plan, error) {
	def, err := def.normalize()
	if err != nil {
		return nil, err
	}
	p := &plan{def: def}
	if p.sources, err = hostSources(b.cfg.etcApt, def.Suite); err != nil {
		return nil, err
	}
	if p.options, err = hostAptOptions(ctx); err != nil {
		return nil, err
	}
	if def.GuestCA == GuestCAHost {
		if p.ca, err = readCADir(b.cfg.caDir, b.log); err != nil {
			return nil, fmt.Errorf("the host's certificates: %w", err)
		}
	}
	if p.agentHash, err = hashFile(b.cfg.AgentPath); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "agent_missing", "the guest agent cannot be read: %w", err)
	}
	p.inputs = rootInputs{
		Format: rootFormat, Arch: b.cfg.Arch, Definition: def, Sources: oneLineFormat(publicSources(p.sources)),
		AptOptions: optionLines(forGuest(p.options)), CA: hashBytes(p.ca),
	}
	p.keys, err = makeKeys(p.inputs, p.agentHash)
	return p, err
}

// Hash returns the hash that a build of def would have now.
func (b *Builder) Hash(ctx context.Context, def Definition) (string, error) {
	p, err := b.plan(ctx, def)
	if err != nil {
		return "", err
	}
	return p.keys.Build, nil
}

// Build returns the artifact of def, building what is missing of it. Calls for
// the same content share one build; it is cancelled when the last of them is.
// Progress goes to the Func of ctx.
func (b *Builder) Build(ctx context.Context, def Definition) (Artifact, error) {
	p, err := b.plan(ctx, def)
	if err != nil {
		return Artifact{}, err
	}
	if a, err := load(p.def.Name, b.dirOf(p)); err == nil {
		return a, nil
	}
	return b.share(ctx, p.def.Name+"/"+p.keys.Build, func(ctx context.Context) (Artifact, error) {
		unlock, err := b.lock(ctx, p.def.Name)
		if err != nil {
			return Artifact{}, err
		}
		defer unlock()
		if a, err := load(p.def.Name, b.dirOf(p)); err == nil {
			return a, nil // another process was faster
		}
		start := time.Now()
		a, err := b.buildLocked(ctx, p)
		if err != nil {
			return a, fmt.Errorf("build template %s: %w", p.def.Name, err)
		}
		b.log.Info("built template", "template", a.Name, "hash", a.Hash, "duration", time.Since(start).Round(time.Millisecond))
		return a, nil
	})
}

func (b *Builder) nameDir(name string) string { return filepath.Join(b.cfg.TemplatesDir, name) }
func (b *Builder) dirOf(p *plan) string {
	return filepath.Join(b.nameDir(p.def.Name), p.keys.Build)
}

// Directories beside the templates. A template's name never starts with a dot.
func (b *Builder) tempDir(name string) string {
	return filepath.Join(b.cfg.TemplatesDir, ".building", name)
}
func (b *Builder) cacheDir() string { return filepath.Join(b.cfg.TemplatesDir, ".packages") }
func (b *Builder) lockFile(name string) string {
	return filepath.Join(b.cfg.TemplatesDir, ".locks", name)
}

// buildLocked builds p aside and renames it into place. The caller holds the
// name's lock, so whatever is in the temporary directory was left by a process that died.
func (b *Builder) buildLocked(ctx context.Context, p *plan) (a Artifact, err error) {
	temp := b.tempDir(p.def.Name)
	if err := removeTree(temp); err != nil {
		return a, err
	}
	defer func() {
		if rerr := removeTree(temp); rerr != nil {
			b.log.Error("left a build directory behind", "dir", temp, "error", rerr)
			err = errors.Join(err, rerr)
		}
	}()
	out := filepath.Join(temp, "out")
	if err := mkdirs(0o755, filepath.Join(b.cfg.TemplatesDir, ".building"), b.nameDir(p.def.Name)); err != nil {
		return a, err
	}
	if err := mkdirs(0o700, temp, out); err != nil {
		return a, err
	}
	m, err := b.makeRoot(ctx, p, temp, out)
	if err != nil {
		return a, err
	}
	done := progress.Step(ctx, "write the initrd")
	if err := writeInitrd(out, b.cfg.AgentPath); err != nil {
		return a, fmt.Errorf("initrd: %w", err)
	}
	if hash, err := hashFile(b.cfg.AgentPath); err != nil || hash != p.agentHash {
		return a, sandbox.Errorf(sandbox.Conflict, "agent_changed", "the guest agent changed while the template was built: build it again")
	}
	if m.Files, err = describe(out, m.Files); err != nil {
		return a, err
	}
	if m.Content, err = contentHash(m.Files); err != nil {
		return a, err
	}
	m.Name, m.Keys, m.AgentHash, m.BuiltAt = p.def.Name, p.keys, p.agentHash, time.Now().UTC()
	if err := writeManifest(out, m); err != nil {
		return a, err
	}
	if err := b.place(ctx, out, b.dirOf(p)); err != nil {
		return a, err
	}
	done()
	return load(p.def.Name, b.dirOf(p))
}

// makeRoot fills out with the files that depend on the root key: from an
// earlier build that has the same one, else by building them.
func (b *Builder) makeRoot(ctx context.Context, p *plan, temp, out string) (Manifest, error) {
	if m, ok := b.takeOver(p, out); ok {
		return m, nil
	}
	if os.Geteuid() != 0 {
		return Manifest{}, sandbox.Errorf(sandbox.Unsupported, "needs_root", "building a template needs root: it makes device nodes and files of many owners")
	}
	if err := missingHostPackages(); err != nil {
		return Manifest{}, err
	}
	if err := checkFree(b.cfg.TemplatesDir, b.cfg.MinFreeMB); err != nil {
		return Manifest{}, err
	}
	if err := pruneCache(b.cacheDir()); err != nil {
		return Manifest{}, err
	}
	r := &rootBuild{
		def: p.def, arch: b.cfg.Arch, sources: p.sources, options: p.options, ca: p.ca,
		work: temp, root: filepath.Join(temp, "root"), out: out, cache: b.cacheDir(),
	}
	start := time.Now()
	if err := b.cfg.build(r)(ctx); err != nil {
		return Manifest{}, err
	}
	took := time.Since(start).Seconds()
	// Now, not later: what is deleted need not be written out by the syncs to come.
	done := progress.Step(ctx, "remove the build directory")
	if err := removeTree(r.root); err != nil {
		return Manifest{}, err
	}
	done()
	m := Manifest{
		Format: manifestFormat, ShapeVersion: ShapeVersion, Arch: b.cfg.Arch, Definition: p.def, Sources: p.inputs.Sources,
		Kernel: r.kernel, Modules: r.modules, Packages: r.versions, RootSeconds: took,
	}
	if len(p.ca) > 0 {
		m.CAHash = p.inputs.CA
	}
	return m, nil
}

// takeOver links the root files of a build of any name with the same root key.
func (b *Builder) takeOver(p *plan, out string) (Manifest, bool) {
	all, err := b.List()
	if err != nil {
		return Manifest{}, false
	}
	for _, a := range all {
		if a.Manifest.Keys.Root != p.keys.Root {
			continue
		}
		ok := true
		for _, f := range rootFiles {
			ok = ok && os.Link(filepath.Join(a.Dir, f), filepath.Join(out, f)) == nil
		}
		if ok {
			m := a.Manifest
			delete(m.Files, initrdFile)
			return m, true
		}
		// It was removed under our hands: start over with an empty directory.
		if os.RemoveAll(out) != nil || os.Mkdir(out, 0o700) != nil {
			return Manifest{}, false
		}
	}
	return Manifest{}, false
}

// place makes out durable and gives it its final name.
func (b *Builder) place(ctx context.Context, out, final string) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Chmod(filepath.Join(out, e.Name()), 0o644); err != nil {
			return err
		}
		if err := b.cfg.Disk.SyncPath("template.file", filepath.Join(out, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Chmod(out, 0o755); err != nil {
		return err
	}
	if err := b.cfg.Disk.SyncDir("template.names", out); err != nil {
		return err
	}
	// What stands there is damaged, or load had taken it.
	if err := b.cfg.Disk.RemoveAll("template.remove", final); err != nil {
		return err
	}
	return b.cfg.Disk.Place("template.place", out, final)
}

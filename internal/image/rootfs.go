package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/progress"
)

// rootBuild is one root filesystem in the making.
type rootBuild struct {
	def     Definition
	arch    string
	sources []source
	options []aptOption
	ca      []byte // PEM of the certificates to add
	work    string // scratch directory
	root    string // work/root, the root filesystem
	out     string // where the results go
	cache   string // packages of earlier builds

	versions map[string]string // of installed packages, filled in by packageVersions
	kernel   string            // release of the kernel, "6.1.0-57-cloud-amd64"
	modules  []string          // load order in the initrd
}

// step is one named part of a build.
type step struct {
	name string
	run  func(context.Context) error
}

// steps is what makes a root filesystem and all that is derived from it, in order.
func (b *rootBuild) steps() []step {
	return []step{
		{"install Debian packages", b.debootstrap},
		{"add the kernel and its modules", b.addKernel},
		{"add npm", b.addNPM},
		{"configure the system", b.configure},
		{"write the disk image", b.writeImages},
	}
}

func (b *rootBuild) run(ctx context.Context) error {
	for _, s := range b.steps() {
		done := progress.Step(ctx, s.name)
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		done()
	}
	return nil
}

// debootstrap makes the base system with mmdebstrap.
func (b *rootBuild) debootstrap(ctx context.Context) error {
	list := filepath.Join(b.work, "debian.list")
	if err := os.WriteFile(list, []byte(oneLineFormat(b.sources)), 0o644); err != nil {
		return err
	}
	if err := b.fillArchives(); err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	p := installProgress{ctx: ctx, step: "install Debian packages"}
	err := program{
		Name:   "mmdebstrap",
		Args:   debootstrapArgs(b.def, b.arch, b.options, b.root, list),
		Dir:    b.work,
		Env:    append(baseEnv(), "TMPDIR="+b.work),
		OnLine: p.line,
	}.run(ctx)
	if err != nil {
		return err
	}
	return b.keepArchives()
}

// debootstrapArgs is the command line of mmdebstrap. Manual pages, translations
// and most documentation stay out at the build only: packages that are
// installed in a guest later come whole.
func debootstrapArgs(d Definition, arch string, options []aptOption, root, list string) []string {
	args := []string{
		"--mode=root", "--variant=minbase", "--verbose", "--architectures=" + arch,
		"--include=" + strings.Join(d.Packages, ","),
		// The package cache is in place before, and is collected after.
		"--skip=check/empty", "--skip=essential/unlink", "--skip=cleanup/apt",
		"--aptopt=APT::Install-Recommends \"false\"",
		// With a pseudo terminal dpkg would leave our process group.
		"--aptopt=Dpkg::Use-Pty \"false\"",
		"--dpkgopt=force-unsafe-io",
	}
	for _, pattern := range []string{
		"exclude=/usr/share/man/*", "exclude=/usr/share/info/*", "exclude=/usr/share/locale/*",
		"exclude=/usr/share/doc/*", "include=/usr/share/doc/*/copyright",
	} {
		args = append(args, "--dpkgopt=path-"+pattern)
	}
	for _, o := range options {
		args = append(args, "--aptopt="+strings.TrimSuffix(o.String(), ";"))
	}
	return append(args, d.Suite, root, list)
}

// installProgress turns the output of apt and dpkg into a fraction. mmdebstrap
// installs twice: first the essential packages, which it unpacks by itself,
// then the others.
type installProgress struct {
	ctx      context.Context
	step     string
	phase    int // 0: essential, 1: the others
	total    int // packages of this phase
	did      int // unpacked or set up in this phase
	fraction float64
}

// essentialShare is how much of the time the first phase takes.
const essentialShare = 0.35

func (p *installProgress) line(line string) {
	switch {
	case strings.HasPrefix(line, "I: installing remaining packages"):
		p.phase, p.total, p.did = 1, 0, 0
	case strings.Contains(line, " newly installed, "):
		// "0 upgraded, 187 newly installed, 0 to remove and 0 not upgraded."
		for part := range strings.SplitSeq(line, ", ") {
			if n, ok := strings.CutSuffix(part, " newly installed"); ok {
				if v, err := strconv.Atoi(n); err == nil {
					p.total = v
				}
			}
		}
	case strings.HasPrefix(line, "Unpacking "), strings.HasPrefix(line, "Setting up "):
		p.did++
	case strings.HasPrefix(line, "Get:"), strings.HasPrefix(line, "I: "):
	default:
		return
	}
	if p.total > 0 {
		done := min(1, float64(p.did)/float64(2*p.total))
		if p.phase == 0 {
			p.fraction = max(p.fraction, done*essentialShare)
		} else {
			p.fraction = max(p.fraction, essentialShare+done*(1-essentialShare))
		}
	}
	progress.Report(p.ctx, progress.Event{Step: p.step, Detail: strings.TrimPrefix(line, "I: "), Fraction: p.fraction})
}

// packageVersions asks dpkg what is installed.
func (b *rootBuild) packageVersions(ctx context.Context) error {
	var out strings.Builder
	err := program{
		Name:   "dpkg-query",
		Args:   []string{"--admindir=" + filepath.Join(b.root, "var/lib/dpkg"), "--show", "--showformat=${Package} ${Version}\\n"},
		Stdout: &out,
	}.run(ctx)
	if err != nil {
		return err
	}
	if b.versions == nil {
		b.versions = map[string]string{}
	}
	for line := range strings.Lines(out.String()) {
		if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			b.versions[name] = version
		}
	}
	return nil
}

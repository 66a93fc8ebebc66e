package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/sandbox"
)

// archivesDir is where apt keeps packages below a root filesystem.
const archivesDir = "var/cache/apt/archives"

// fillArchives links the packages of earlier builds to where apt looks for
// them. apt checks their hashes, so an old or broken one is only fetched again.
func (b *rootBuild) fillArchives() error {
	// The directory above is root's alone: nobody can run the setuid programs
	// of a half-made system.
	if err := os.MkdirAll(filepath.Join(b.root, archivesDir), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(b.root, 0o755); err != nil {
		return err
	}
	return linkAll(b.cache, filepath.Join(b.root, archivesDir))
}

// keepArchives moves the packages that a build used into the cache.
func (b *rootBuild) keepArchives() error {
	return moveDebs(filepath.Join(b.root, archivesDir), b.cache)
}

func debs(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	slices.Sort(files)
	return files, err
}

func linkAll(from, to string) error {
	files, err := debs(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Link(f, filepath.Join(to, filepath.Base(f))); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func moveDebs(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := debs(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		// Renaming a link onto another link of the same file does nothing:
		// take the old name away first.
		target := filepath.Join(to, filepath.Base(f))
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(f, target); err != nil {
			return err
		}
	}
	return nil
}

// aptEnv returns an environment in which the host's apt works on the root
// filesystem, with the package lists that mmdebstrap fetched.
func (b *rootBuild) aptEnv() ([]string, error) {
	conf := filepath.Join(b.work, "apt.conf")
	lines := []aptOption{
		{"APT::Architecture", b.arch},
		{"APT::Install-Recommends", "false"},
		// Downloads go to a directory that the user _apt cannot enter.
		{"APT::Sandbox::User", "root"},
		{"Dir", b.root},
		{"Dir::State::status", filepath.Join(b.root, "var/lib/dpkg/status")},
	}
	var text strings.Builder
	for _, o := range append(lines, b.options...) {
		text.WriteString(o.String() + "\n")
	}
	fmt.Fprintf(&text, "APT::Architectures { %q; };\n", b.arch)
	if err := os.WriteFile(conf, []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	return append(baseEnv(), "APT_CONFIG="+conf), nil
}

// unpack downloads the packages and unpacks them, without running their
// scripts or telling dpkg, into a new directory under work. It returns
// the directory and the versions of what it unpacked.
func (b *rootBuild) unpack(ctx context.Context, name string, packages []string, onLine func(string)) (string, map[string]string, error) {
	env, err := b.aptEnv()
	if err != nil {
		return "", nil, err
	}
	dl, dir := filepath.Join(b.work, name+"-debs"), filepath.Join(b.work, name)
	for _, d := range []string{dl, dir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return "", nil, err
		}
	}
	if err := b.linkCached(dl, packages); err != nil {
		return "", nil, err
	}
	err = program{Name: "apt-get", Args: append([]string{"download", "--"}, packages...), Dir: dl, Env: env, OnLine: onLine}.run(ctx)
	if err != nil {
		return "", nil, err
	}
	files, err := debs(dl)
	if err != nil {
		return "", nil, err
	}
	versions := map[string]string{}
	for _, f := range files {
		// name_version_arch.deb, with ':' in versions written as %3a.
		if part := strings.Split(filepath.Base(f), "_"); len(part) == 3 {
			versions[part[0]] = strings.ReplaceAll(part[1], "%3a", ":")
		}
		if onLine != nil {
			onLine("Unpacking " + filepath.Base(f))
		}
		if err := (program{Name: "dpkg-deb", Args: []string{"--extract", f, dir}}).run(ctx); err != nil {
			return "", nil, err
		}
	}
	return dir, versions, moveDebs(dl, b.cache)
}

// linkCached links cached packages of the given names into dir.
func (b *rootBuild) linkCached(dir string, names []string) error {
	files, err := debs(b.cache)
	if err != nil {
		return err
	}
	for _, f := range files {
		name, _, _ := strings.Cut(filepath.Base(f), "_")
		if !slices.Contains(names, name) {
			continue
		}
		if err := os.Link(f, filepath.Join(dir, filepath.Base(f))); err != nil {
			return err
		}
	}
	return nil
}

// depends returns the packages that a package depends on: with recurse all of
// them, else the direct ones.
func (b *rootBuild) depends(ctx context.Context, pkg string, recurse bool) ([]string, error) {
	env, err := b.aptEnv()
	if err != nil {
		return nil, err
	}
	args := []string{"depends", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"}
	if recurse {
		args = append(args, "--recurse")
	}
	var out strings.Builder
	if err := (program{Name: "apt-cache", Args: append(args, "--", pkg), Env: env, Stdout: &out}).run(ctx); err != nil {
		return nil, err
	}
	return parseDepends(out.String(), recurse), nil
}

// parseDepends reads what apt-cache depends prints. With recurse it takes the
// heads of all entries, among them packages that only provide what another
// asks for, and so would be missing from the lines of dependencies.
func parseDepends(text string, recurse bool) []string {
	var names []string
	for line := range strings.Lines(text) {
		name, ok := strings.TrimSpace(line), !strings.HasPrefix(line, " ")
		if !recurse {
			_, name, ok = strings.Cut(name, "Depends: ")
		}
		if ok && packageRE.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func notInSuite(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Unavailable, "package_missing", format, args...)
}

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/progress"
)

// nodeModules is where Debian keeps JavaScript modules, relative to the root.
const nodeModules = "usr/share/nodejs"

// undeclared are modules that Debian's patches make npm's dependencies ask for
// without saying so in a package.json.
var undeclared = []string{"colors", "defaults", "supports-color", "wcwidth.js"}

// addNPM adds npm. Debian's package drags in four hundred others; npm itself
// runs with the modules that its package.json names, and those that these
// name. So all of them are unpacked aside, and the modules that npm
// reaches (8 MB) are moved to where Debian has them. If someone installs
// Debian's npm in a guest, it replaces the same files.
func (b *rootBuild) addNPM(ctx context.Context) error {
	if !b.def.NPM {
		return nil
	}
	all, err := b.depends(ctx, "npm", true)
	if err != nil {
		return err
	}
	packages := []string{"npm"}
	for _, p := range all {
		if strings.HasPrefix(p, "node-") {
			packages = append(packages, p)
		}
	}
	packages, err = b.downloadable(ctx, packages)
	if err != nil {
		return err
	}
	report := func(line string) { progress.Report(ctx, progress.Event{Step: "add npm", Detail: line}) }
	dir, versions, err := b.unpack(ctx, "npm", packages, report)
	if err != nil {
		return err
	}
	b.versions["npm"] = versions["npm"]
	reached, err := nodeClosure(filepath.Join(dir, nodeModules), append([]string{"npm"}, undeclared...)...)
	if err != nil {
		return err
	}
	for _, m := range reached {
		if err := moveInto(dir, b.root, path.Join(nodeModules, m)); err != nil {
			return fmt.Errorf("npm module %s: %w", m, err)
		}
	}
	for _, name := range []string{"npm", "npx"} {
		target := "../share/nodejs/npm/bin/" + name + "-cli.js"
		if err := os.Symlink(target, filepath.Join(b.root, "usr/bin", name)); err != nil {
			return err
		}
	}
	return nil
}

// downloadable drops virtual packages, which only others provide.
func (b *rootBuild) downloadable(ctx context.Context, names []string) ([]string, error) {
	env, err := b.aptEnv()
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	args := append([]string{"show", "--no-all-versions", "--"}, names...)
	if err := (program{Name: "apt-cache", Args: args, Env: env, Stdout: &out}).run(ctx); err != nil {
		return nil, err
	}
	var real []string
	for line := range strings.Lines(out.String()) {
		if name, ok := strings.CutPrefix(line, "Package: "); ok {
			real = append(real, strings.TrimSpace(name))
		}
	}
	slices.Sort(real)
	return slices.Compact(real), nil
}

// moveInto moves the file or directory rel from one root to another. A
// symbolic link is moved as it is.
func moveInto(from, to, rel string) error {
	target := filepath.Join(to, rel)
	if _, err := os.Lstat(target); err == nil {
		return nil // came with another package, or inside a directory moved before
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(from, rel), target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // moved before as part of a directory
	}
	return err
}

// nodeClosure returns the modules below dir, as relative paths, that the
// modules start can reach through the dependencies in package.json files, resolved
// as node does. Dependencies that Debian left out are left out here too.
func nodeClosure(dir string, start ...string) ([]string, error) {
	seen := map[string]bool{}
	var order []string
	var visit func(rel string) error
	visit = func(rel string) error {
		if seen[rel] {
			return nil
		}
		seen[rel] = true
		order = append(order, rel)
		info, err := os.Lstat(filepath.Join(dir, rel))
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return visitLink(dir, rel, visit)
		}
		// A scope's or package's node_modules may itself be a link, by which
		// the modules in it find those of another package.
		for at := rel; at != "."; at = path.Dir(at) {
			link := path.Join(at, "node_modules")
			if info, err := os.Lstat(filepath.Join(dir, link)); err == nil && info.Mode()&fs.ModeSymlink != 0 && !seen[link] {
				seen[link] = true
				order = append(order, link)
			}
		}
		needs, err := nodeDependencies(filepath.Join(dir, rel, "package.json"))
		if err != nil {
			return err
		}
		for _, need := range needs {
			if found := resolveNode(dir, rel, need); found != "" {
				if err := visit(found); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, s := range start {
		if err := visit(s); err != nil {
			return nil, fmt.Errorf("dependencies of %s: %w", s, err)
		}
	}
	return order, nil
}

// visitLink follows a module that is a symbolic link to another one below dir.
func visitLink(dir, rel string, visit func(string) error) error {
	target, err := os.Readlink(filepath.Join(dir, rel))
	if err != nil {
		return err
	}
	if path.IsAbs(target) {
		target, err = filepath.Rel("/"+nodeModules, target)
	} else {
		target = path.Join(path.Dir(rel), target)
	}
	if err != nil || !filepath.IsLocal(target) {
		return nil // leaves the tree: nothing of ours to bring along
	}
	if _, err := os.Lstat(filepath.Join(dir, target)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return visit(target)
}

// resolveNode finds module name as code in the module rel would.
func resolveNode(dir, rel, name string) string {
	for at := rel; ; at = path.Dir(at) {
		candidate := path.Join(at, "node_modules", name)
		if at == "." {
			candidate = name
		}
		if filepath.IsLocal(candidate) {
			if _, err := os.Lstat(filepath.Join(dir, candidate)); err == nil {
				return candidate
			}
		}
		if at == "." {
			return ""
		}
	}
}

func nodeDependencies(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a plain file module
	}
	if err != nil {
		// A module can be a single .js file: then there is nothing below it.
		if info, serr := os.Stat(filepath.Dir(file)); serr == nil && !info.IsDir() {
			return nil, nil
		}
		return nil, err
	}
	var p struct {
		Dependencies map[string]any `json:"dependencies"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var names []string
	for name := range p.Dependencies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

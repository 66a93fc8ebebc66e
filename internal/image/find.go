package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ramet.dev/ramet/internal/sandbox"
)

// Lookup returns the newest complete build of a name.
func (b *Builder) Lookup(name string) (Artifact, error) {
	if nameRE.MatchString(name) {
		builds, err := b.builds(name)
		if err != nil {
			return Artifact{}, err
		}
		if len(builds) > 0 {
			return builds[0], nil
		}
	}
	return Artifact{}, sandbox.Errorf(sandbox.NotFound, "template_not_found", "there is no template %q on this node: build it with 'ramet template build'", name)
}

// List returns all complete builds: by name, the newest first within one.
func (b *Builder) List() ([]Artifact, error) {
	entries, err := os.ReadDir(b.cfg.TemplatesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Artifact
	for _, e := range entries {
		if !e.IsDir() || !nameRE.MatchString(e.Name()) {
			continue
		}
		builds, err := b.builds(e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, builds...)
	}
	return all, nil
}

// builds returns the complete builds of a name, the newest first.
func (b *Builder) builds(name string) ([]Artifact, error) {
	entries, err := os.ReadDir(b.nameDir(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var found []Artifact
	for _, e := range entries {
		a, err := load(name, filepath.Join(b.nameDir(name), e.Name()))
		if errors.Is(err, errIncomplete) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, a)
	}
	slices.SortFunc(found, func(x, y Artifact) int { return y.Manifest.BuiltAt.Compare(x.Manifest.BuiltAt) })
	return found, nil
}

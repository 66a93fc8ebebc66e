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
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// Remove deletes all builds of a name, golden snapshots included. Whether one is in
// use is the caller's to know.
func (b *Builder) Remove(ctx context.Context, name string) error {
	if _, err := os.Stat(b.nameDir(name)); !nameRE.MatchString(name) || err != nil {
		return sandbox.Errorf(sandbox.NotFound, "template_not_found", "there is no template %q on this node", name)
	}
	unlock, err := b.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return b.deleteLocked(name, b.nameDir(name))
}

// Prune deletes builds from before a time that are neither the newest of their
// name nor among inUse (hashes of artifacts), and what dead builds left. It
// returns what it deleted.
func (b *Builder) Prune(ctx context.Context, inUse []string, before time.Time) ([]Artifact, error) {
	entries, err := os.ReadDir(b.cfg.TemplatesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var gone []Artifact
	for _, e := range entries {
		if !e.IsDir() || !nameRE.MatchString(e.Name()) {
			continue
		}
		removed, err := b.pruneName(ctx, e.Name(), inUse, before)
		gone = append(gone, removed...)
		if err != nil {
			return gone, fmt.Errorf("prune template %s: %w", e.Name(), err)
		}
	}
	return gone, nil
}

func (b *Builder) pruneName(ctx context.Context, name string, inUse []string, before time.Time) ([]Artifact, error) {
	unlock, err := b.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeTree(b.tempDir(name)); err != nil {
		return nil, err
	}
	builds, err := b.builds(name)
	if err != nil {
		return nil, err
	}
	var gone []Artifact
	for i, a := range builds {
		if i == 0 || slices.Contains(inUse, a.Hash) || !a.Manifest.BuiltAt.Before(before) {
			continue
		}
		if err := b.deleteLocked(name, a.Dir); err != nil {
			return gone, err
		}
		gone = append(gone, a)
	}
	return gone, nil
}

// deleteLocked takes a directory out of sight in one step and then deletes it.
func (b *Builder) deleteLocked(name, dir string) error {
	temp := b.tempDir(name)
	if err := removeTree(temp); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(temp), 0o755); err != nil {
		return err
	}
	// Half of a template must never be found under its name.
	if err := b.cfg.Disk.Rename("template.remove", dir, temp); err != nil {
		return err
	}
	if err := b.cfg.Disk.SyncDir("template.remove", filepath.Dir(dir)); err != nil {
		return err
	}
	return removeTree(temp)
}

// pruneCache keeps the newest file of each package in the cache of packages.
func pruneCache(dir string) error {
	files, err := debs(dir)
	if err != nil {
		return err
	}
	type cached struct {
		file string
		info fs.FileInfo
	}
	newest := map[string]cached{}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(f), "_")
		old, seen := newest[name]
		lose := f
		if !seen || info.ModTime().After(old.info.ModTime()) {
			newest[name] = cached{f, info}
			lose = old.file
		}
		if lose != "" {
			if err := os.Remove(lose); err != nil {
				return err
			}
		}
	}
	return nil
}

func mkdirs(mode fs.FileMode, dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(d, mode); err != nil {
			return err
		}
	}
	return nil
}

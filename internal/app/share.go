package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/image"
)

// ShareTemplate gives a data directory the newest build of a template of another one, with
// its golden snapshots, by links to the same files. Either can be removed without the other. It
// returns a NotFound when there is no build.
func ShareTemplate(from, to config.Home, name string) error {
	builder, err := image.New(image.Config{TemplatesDir: from.Templates()})
	if err != nil {
		return err
	}
	built, err := builder.Lookup(image.Canonical(name))
	if err != nil {
		return err
	}
	target := filepath.Join(to.Templates(), built.Name, filepath.Base(built.Dir))
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("share template %s: %w", name, err)
	}
	err = linkTree(built.Dir, target)
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("share template %s: %s is on another file system than %s: %w", name, built.Dir, to, err)
	}
	if err != nil {
		return fmt.Errorf("share template %s: %w", name, err)
	}
	return nil
}

// linkTree makes the directories of a tree anew, and links its files. What goes meanwhile
// is left out: a server may finish a snapshot, or drop one.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return skipGone(err)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			info, err := e.Info()
			if err != nil {
				return skipGone(err)
			}
			return os.Mkdir(target, info.Mode().Perm())
		case e.Type().IsRegular():
			return skipGone(os.Link(path, target))
		}
		return nil // there is nothing else in it
	})
}

func skipGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

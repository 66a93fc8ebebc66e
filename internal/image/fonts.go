package image

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// matplotlibrc is Debian's configuration of matplotlib, for all users.
const matplotlibrc = "etc/matplotlibrc"

// addFonts makes matplotlib draw characters that its own font has not with the fonts of the
// definition, and makes its list of fonts, which takes it seconds. It comes before the
// users are made: they get the list with their homes.
func (b *rootBuild) addFonts(ctx context.Context) error {
	if len(b.def.Fonts) == 0 {
		return nil
	}
	r, err := os.OpenRoot(b.root)
	if err != nil {
		return err
	}
	defer r.Close()
	conf, err := r.ReadFile(matplotlibrc)
	if err != nil {
		return fmt.Errorf("read matplotlib's configuration: %w", err)
	}
	text := string(conf) + "\n# Each is asked in turn for a character that those before it have not.\n" +
		"font.family: sans-serif, " + strings.Join(b.def.Fonts, ", ") + "\n"
	if err := b.write(matplotlibrc, text, 0o644); err != nil {
		return err
	}
	// The home is where new users' homes are copied from, and then root's.
	err = program{
		Name: "/usr/bin/python3", Root: b.root, Env: append(baseEnv(), "HOME=/etc/skel", "MPLBACKEND=Agg"),
		Args: []string{"-c", checkFonts, strings.Join(b.def.Fonts, "\n")},
	}.run(ctx)
	if err != nil {
		return fmt.Errorf("make the list of fonts: %w", err)
	}
	return b.copyFontList(r)
}

// checkFonts has matplotlib make its list of fonts, and fails when a font is not in it.
const checkFonts = `import sys
from matplotlib import font_manager, rcParams
for font in sys.argv[1].split("\n"):
    font_manager.findfont(font, fallback_to_default=False)
    assert font in rcParams["font.family"], rcParams["font.family"]
`

// copyFontList gives root's home what is in the one of new users.
func (b *rootBuild) copyFontList(r *os.Root) error {
	const dir = ".cache/matplotlib"
	lists, err := fs.Glob(r.FS(), "etc/skel/"+dir+"/fontlist-*.json")
	if err != nil {
		return err
	}
	if len(lists) == 0 {
		return fmt.Errorf("matplotlib wrote no list of fonts to /etc/skel/%s", dir)
	}
	for _, list := range lists {
		text, err := r.ReadFile(list)
		if err != nil {
			return err
		}
		if err := b.write(filepath.Join("root", dir, filepath.Base(list)), string(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

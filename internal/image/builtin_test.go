package image

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

func TestBuiltinTemplatesAreFoundByTheirNamesAndAliases(t *testing.T) {
	for _, name := range append(Builtin(), slices.Collect(maps.Keys(Aliases()))...) {
		d, err := Find(name)
		if err != nil || d.Name != Canonical(name) || !slices.Contains(Builtin(), d.Name) {
			t.Errorf("%s: %s, %v", name, d.Name, err)
		}
		if _, err := d.normalize(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if Canonical("base") != DefaultName || Canonical("python-datasci") != InterpreterName || Canonical("other") != "other" {
		t.Error("an alias means another template")
	}
	_, err := Find("other")
	if sandbox.KindOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), InterpreterName) {
		t.Errorf("an unknown one: %v", err)
	}
}

func TestInterpreterTemplateHasWhatTheDefaultHas(t *testing.T) {
	d := Interpreter()
	for _, p := range Default().Packages {
		if !slices.Contains(d.Packages, p) {
			t.Errorf("%s is missing", p)
		}
	}
	if a, b := Default().Packages, Default().Packages; !slices.Equal(a, b) || slices.Contains(a, "python3-pandas") {
		t.Error("the default's packages have changed")
	}
}

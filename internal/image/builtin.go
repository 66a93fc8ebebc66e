package image

import (
	"maps"
	"runtime"
	"strings"

	"ramet.dev/ramet/internal/sandbox"
)

// DefaultName is the name of the template that sandboxes start from when none is asked for.
const DefaultName = "default"

// InterpreterName is the name of the template with what works on data: pandas, numpy, matplotlib.
const InterpreterName = "code-interpreter-v1"

// aliases are other names of templates that this version knows, as other clouds call theirs.
var aliases = map[string]string{
	"base":           DefaultName,
	"python-datasci": InterpreterName,
}

// Canonical returns the name of the template that a name or an alias means. A name that
// is not known stays what it is.
func Canonical(name string) string {
	if to, ok := aliases[name]; ok {
		return to
	}
	return name
}

// Aliases returns the other names of templates, and the templates that they mean.
func Aliases() map[string]string { return maps.Clone(aliases) }

// Builtin returns the names of the templates that this version knows how to build, the default first.
func Builtin() []string { return []string{DefaultName, InterpreterName} }

// Find returns the definition of a built-in template by its name or an alias.
func Find(name string) (Definition, error) {
	switch Canonical(name) {
	case DefaultName:
		return Default(), nil
	case InterpreterName:
		return Interpreter(), nil
	}
	return Definition{}, sandbox.Errorf(sandbox.NotFound, "template_not_found",
		"there is no template definition %q; this version knows %s", name, strings.Join(Builtin(), ", "))
}

// Default returns the definition of the template "default".
func Default() Definition {
	return Definition{
		Name:  DefaultName,
		Suite: "bookworm",
		Packages: []string{
			"bash", "bash-completion", "ca-certificates", "curl", "file", "git", "iproute2", "iputils-ping",
			"ipython3", "jq", "kmod", "less", "nano", "netbase", "nodejs", "openssh-client", "procps",
			"python-is-python3", "python3", "python3-pip", "python3-venv", "rsync", "sudo",
			"tzdata", "unzip", "wget", "xz-utils", "zip",
		},
		Kernel:  "linux-image-cloud-" + runtime.GOARCH, // Debian and Go agree on the names that matter
		NPM:     true,
		Users:   []User{{Name: "user", UID: 1000}, {Name: "sandbox", UID: 1001}},
		GuestCA: GuestCAHost,
		DiskMB:  sandbox.DefaultDiskMB,
	}
}

// Interpreter returns the definition of the template "code-interpreter-v1": the default's
// packages and those that work on data, with a font for Chinese, Japanese and Korean.
func Interpreter() Definition {
	d := Default()
	d.Name = InterpreterName
	d.Packages = append(d.Packages,
		"fonts-wqy-microhei", "python3-matplotlib", "python3-numpy", "python3-openpyxl", "python3-pandas",
		"python3-pil", "python3-requests")
	d.Fonts = []string{"WenQuanYi Micro Hei"}
	d.WarmUp = []WarmUp{
		// Drawing once also loads the font and what writes PNG.
		{Language: "python", Code: interpreterWarmUp},
	}
	return d
}

const interpreterWarmUp = `import numpy, pandas, matplotlib.pyplot
pandas.DataFrame({"x": [1.0, 2.0]})
matplotlib.pyplot.plot([1, 2])
matplotlib.pyplot.show()
del numpy, pandas, matplotlib
`

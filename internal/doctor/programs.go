package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"ramet.dev/ramet/internal/config"
)

// Debian's packages of the programs that Ramet runs.
const (
	pkgQEMU       = "qemu-system-x86"
	pkgQEMUUtils  = "qemu-utils"
	pkgMmdebstrap = "mmdebstrap"
	pkgE2fsprogs  = "e2fsprogs"
)

var versionPattern = regexp.MustCompile(`\b(\d+)\.(\d+)(?:\.\d+)*`)

// program checks that a program is there and new enough.
func program(ctx context.Context, h Host, name, versionFlag, pkg string, major, minor int) finding {
	install := "install it: apt-get install " + pkg
	path, err := h.LookPath(name)
	if err != nil {
		return finding{Fail, name + " is not installed", install}
	}
	out, err := h.Run(ctx, path, versionFlag)
	if err != nil {
		return finding{Fail, fmt.Sprintf("%s does not run: %v", path, err), "reinstall it: apt-get install --reinstall " + pkg}
	}
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return finding{Warn, name + " does not tell its version", ""}
	}
	gotMajor, _ := strconv.Atoi(m[1])
	gotMinor, _ := strconv.Atoi(m[2])
	if gotMajor < major || (gotMajor == major && gotMinor < minor) {
		return finding{
			Fail, fmt.Sprintf("%s is version %s, but %d.%d or newer is needed", name, m[0], major, minor),
			"upgrade the package " + pkg,
		}
	}
	return ok("%s %s", name, m[0])
}

func checkQEMU(ctx context.Context, h Host, s config.Server) finding {
	f := program(ctx, h, "qemu-system-x86_64", "--version", pkgQEMU, 7, 2)
	if f.status == Fail && s.Driver == "gvisor" {
		f.status = Warn
		f.summary += "; the driver gvisor does without it"
	}
	return f
}

func checkQEMUImg(ctx context.Context, h Host, _ config.Server) finding {
	return program(ctx, h, "qemu-img", "--version", pkgQEMUUtils, 7, 2)
}

func checkMmdebstrap(ctx context.Context, h Host, _ config.Server) finding {
	return program(ctx, h, "mmdebstrap", "--version", pkgMmdebstrap, 1, 0)
}

func checkE2fsprogs(ctx context.Context, h Host, _ config.Server) finding {
	// -d, which fills the filesystem from a directory, is older than 1.46 but
	// lost extended attributes before it.
	return program(ctx, h, "mkfs.ext4", "-V", pkgE2fsprogs, 1, 46)
}

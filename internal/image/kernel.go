package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/internal/image/initramfs"
	"ramet.dev/ramet/internal/progress"
)

// addKernel puts the kernel beside the image and all its modules into the root
// filesystem. The package is unpacked, not installed: it would bring tools
// that make an initrd, and run them in every guest that upgrades something. dpkg in the
// guest does not know of it, so nothing there can replace what boots.
func (b *rootBuild) addKernel(ctx context.Context) error {
	pkg := b.def.Kernel
	direct, err := b.depends(ctx, pkg, false)
	if err != nil {
		return err
	}
	for _, d := range direct { // a meta package depends on the real one
		if strings.HasPrefix(d, "linux-image-") {
			pkg = d
		}
	}
	report := func(line string) {
		progress.Report(ctx, progress.Event{Step: "add the kernel and its modules", Detail: line})
	}
	dir, versions, err := b.unpack(ctx, "kernel", []string{pkg}, report)
	if err != nil {
		return err
	}
	releases, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil || len(releases) != 1 {
		return notInSuite("the package %s does not hold the modules of one kernel", pkg)
	}
	b.kernel = filepath.Base(releases[0])
	b.versions = versions
	if err := os.MkdirAll(filepath.Join(b.root, "usr/lib/modules"), 0o755); err != nil {
		return err
	}
	modules := filepath.Join(b.root, "usr/lib/modules", b.kernel)
	if err := os.Rename(releases[0], modules); err != nil {
		return err
	}
	// Programs read the kernel's configuration here to see what it can do.
	config := filepath.Join(dir, "boot/config-"+b.kernel)
	if err := os.Rename(config, filepath.Join(b.root, "boot/config-"+b.kernel)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "boot/vmlinuz-"+b.kernel), filepath.Join(b.out, vmlinuzFile)); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(b.out, vmlinuzFile), 0o644); err != nil {
		return err
	}
	report("index the modules of " + b.kernel)
	if err := (program{Name: "/sbin/depmod", Args: []string{b.kernel}, Root: b.root}).run(ctx); err != nil {
		return err
	}
	return b.writeModules(modules)
}

func (b *rootBuild) writeModules(dir string) error {
	f, err := os.Create(filepath.Join(b.out, modulesFile))
	if err != nil {
		return err
	}
	defer f.Close()
	if b.modules, err = initramfs.WriteModules(f, dir, initramfs.Drivers); err != nil {
		return err
	}
	return f.Close()
}

// writeInitrd joins the modules' archive and the agent's. It is not
// compressed: the kernel of an emulated guest takes longer to decompress it
// than to copy it.
func writeInitrd(dir, agentPath string) error {
	out, err := os.Create(filepath.Join(dir, initrdFile))
	if err != nil {
		return err
	}
	defer out.Close()
	modules, err := os.Open(filepath.Join(dir, modulesFile))
	if err != nil {
		return err
	}
	defer modules.Close()
	if _, err := out.ReadFrom(modules); err != nil {
		return err
	}
	if err := initramfs.WriteAgent(out, agentPath); err != nil {
		return err
	}
	return out.Close()
}

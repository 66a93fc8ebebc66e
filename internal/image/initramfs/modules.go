// Package initramfs makes the initial RAM filesystem that the guest kernel
// unpacks: the kernel modules that it takes to reach the root disk and the
// devices of the machine shape, and the agent as /init.
//
// The archive holds /modules.list: one absolute path of a module file per
// line, in the order in which to load them. Every module comes after those it
// needs, so a loader passes each file to finit_module(2) and is done.
//
// Start reading at WriteModules and WriteAgent, which make the two halves. The kernel
// unpacks archives that follow each other, so the halves are simply joined.
package initramfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Drivers are the modules of machine shape v1: the virtio devices, the root
// filesystem, and crc32c, which ext4 asks the crypto layer for by name, so that
// no dependency shows it. There is no balloon: see the design, section 4.
var Drivers = []string{
	"virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "virtio_mem",
	"crc32c_generic", "ext4",
}

// loadOrder returns the files, relative to the modules directory dir, that
// have to be loaded for the wanted modules, dependencies first. Modules that
// are built into the kernel need no file.
func loadOrder(dir string, wanted []string) ([]string, error) {
	deps, err := readDeps(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	builtin, err := readBuiltin(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	byName := make(map[string]string, len(deps))
	for file := range deps {
		byName[moduleName(file)] = file
	}
	var order []string
	state := map[string]int{} // 1: being visited, 2: in order
	var visit func(file string) error
	visit = func(file string) error {
		switch state[file] {
		case 1:
			return fmt.Errorf("modules.dep: %s depends on itself", file)
		case 2:
			return nil
		}
		needs, known := deps[file]
		if !known {
			return fmt.Errorf("modules.dep: %s is needed but not listed", file)
		}
		state[file] = 1
		for _, need := range needs {
			if err := visit(need); err != nil {
				return err
			}
		}
		state[file] = 2
		order = append(order, file)
		return nil
	}
	for _, name := range wanted {
		file, ok := byName[moduleName(name)]
		if !ok {
			if builtin[moduleName(name)] {
				continue
			}
			return nil, fmt.Errorf("kernel modules in %s: there is no module %s", dir, name)
		}
		if err := visit(file); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleName is the kernel's name of a module file: '-' and '_' are the same.
func moduleName(file string) string {
	name := path.Base(file)
	if i := strings.Index(name, ".ko"); i >= 0 {
		name = name[:i]
	}
	return strings.ReplaceAll(name, "-", "_")
}

// readDeps parses lines of the form "a.ko: b.ko c.ko".
func readDeps(file string) (map[string][]string, error) {
	deps := map[string][]string{}
	err := eachLine(file, func(line string) error {
		name, needs, ok := strings.Cut(line, ":")
		if !ok || !filepath.IsLocal(name) {
			return fmt.Errorf("%s: bad line %q", file, line)
		}
		deps[name] = strings.Fields(needs)
		return nil
	})
	return deps, err
}

func readBuiltin(file string) (map[string]bool, error) {
	builtin := map[string]bool{}
	err := eachLine(file, func(line string) error {
		builtin[moduleName(line)] = true
		return nil
	})
	return builtin, err
}

func eachLine(file string, do func(string) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewScanner(io.LimitReader(f, 64<<20))
	r.Buffer(nil, 1<<20)
	for r.Scan() {
		if line := strings.TrimSpace(r.Text()); line != "" {
			if err := do(line); err != nil {
				return err
			}
		}
	}
	return r.Err()
}

package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// moduleCompressed is MODULE_INIT_COMPRESSED_FILE of finit_module(2).
const moduleCompressed = 4

// loadModules loads the modules that the initramfs lists, in its order, which
// respects their dependencies. A module that is there already, or whose device
// is not, is no error. Other failures are collected: the boot goes on, since
// the module may not be needed, and the console has the reason if it was.
func loadModules() error {
	list, err := os.ReadFile(moduleList)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel with everything built in
	}
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(string(list)) {
		if err := loadModule(path); err != nil {
			fmt.Fprintf(os.Stderr, "ramet-agent: load %s: %v\n", path, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if !strings.HasSuffix(path, ".ko") {
		flags = moduleCompressed // .ko.xz, .ko.zst
	}
	err = unix.FinitModule(int(f.Fd()), "", flags)
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

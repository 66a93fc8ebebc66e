// Command ramet-runsc is gVisor's runsc, built from the module that go.mod pins
// and linked statically: a dynamic one cannot start itself again in its empty
// root directory. scripts/build-runsc makes it, and adds the files in additions/
// to gVisor's packages; internal/vmm/gvisor runs it.
package main

import (
	"gvisor.dev/gvisor/runsc/cli/maincli"
	"gvisor.dev/gvisor/runsc/version"
)

// runsc sets it when it is linked, so it has to be part of the program.
var _ = version.Version()

func main() {
	maincli.Main()
}

package linux

// This file is Ramet's and not part of gVisor. It is named to come after linux64.go, whose init
// registers the table.

import (
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/syscalls"
)

// rametHoldCall is the number of a system call that Linux does not have.
const rametHoldCall = 1900

func init() {
	AMD64.RametAdd(rametHoldCall, syscalls.Supported("ramet_hold", rametHold))
}

// rametHold stops all tasks of other processes than the first, or lets them go on. Only the first
// may call it.
func rametHold(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	k := t.Kernel()
	if t.ThreadGroup() != k.GlobalInit() {
		return 0, nil, linuxerr.ENOSYS
	}
	switch args[0].Uint() {
	case 0:
		k.RametRelease()
	case 1:
		k.RametHold()
	default:
		return 0, nil, linuxerr.EINVAL
	}
	return 0, nil, nil
}

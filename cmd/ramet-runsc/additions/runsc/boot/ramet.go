package boot

// This file is Ramet's and not part of gVisor. It adds a call to the sandbox's
// control socket, which registers all methods of containerManager.

import (
	"errors"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// RametResizeArgs are the sizes that a sandbox is to have. Zero leaves one as it is.
type RametResizeArgs struct {
	// MemoryBytes is the memory that programs in the sandbox see, and may have. The control group
	// around the sandbox's processes has the last word.
	MemoryBytes uint64 `json:"memory_bytes"`
	// Cores is how many CPUs they see. It has an effect before the sandbox runs.
	Cores uint `json:"cores"`
	// DiskBytes bounds the writable layer of the root filesystem.
	DiskBytes uint64 `json:"disk_bytes"`
}

// RametResize changes what a sandbox has, while it runs or is paused.
func (cm *containerManager) RametResize(args *RametResizeArgs, _ *struct{}) error {
	log.Debugf("containerManager.RametResize, args: %+v", args)
	if args.MemoryBytes > 0 {
		// Both are words that are read without a lock whenever a program asks.
		usage.MinimumTotalMemoryBytes = args.MemoryBytes
		usage.MaximumTotalMemoryBytes = args.MemoryBytes
		cm.l.k.RametLimitMemory(args.MemoryBytes)
	}
	if args.Cores > 0 {
		cm.l.k.RametSetCores(args.Cores)
	}
	if args.DiskBytes == 0 {
		return nil
	}
	ctx := cm.l.k.SupervisorContext()
	found := false
	for _, fs := range cm.l.k.VFS().GetFilesystems() {
		if mf := tmpfs.MemoryFileOf(fs); mf != nil && mf.ResourceID().Path == "/" {
			found = tmpfs.RametSetSize(fs, args.DiskBytes)
		}
		fs.DecRef(ctx)
	}
	if !found {
		return errors.New("the root filesystem has no writable layer of its own")
	}
	return nil
}

// RametStatus is what a server needs to know of a sandbox that it takes over.
type RametStatus struct {
	Paused bool `json:"paused"`
}

// RametGetStatus returns the sandbox's status.
func (cm *containerManager) RametGetStatus(_ *struct{}, status *RametStatus) error {
	status.Paused = cm.l.k.IsPaused()
	return nil
}

package tmpfs

// This file is Ramet's and not part of gVisor.

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// RametSetSize changes how much a tmpfs may hold, and says whether vfsfs is one.
// It never takes away what is in use.
func RametSetSize(vfsfs *vfs.Filesystem, bytes uint64) bool {
	fs, _ := vfsfs.Impl().(*filesystem)
	if fs == nil {
		return false
	}
	// Those who account pages read it once for each attempt.
	atomic.StoreUint64(&fs.maxSizeInPages, max(bytes/hostarch.PageSize, fs.pagesUsed.Load()))
	return true
}

package pgalloc

// This file is Ramet's and not part of gVisor.

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

const (
	// rametStep is how much is allocated between two looks at what is used, in bytes.
	rametStep = 4 << 20
	// rametOver is how far processes may go beyond the limit, while the largest is being ended.
	rametOver = 64 << 20
	// rametSpare is what files in memory leave: no process can be ended to have theirs back.
	rametSpare = 96 << 20
)

// rametLimited is the file whose allocations are watched.
var rametLimited atomic.Pointer[rametLimit]

type rametLimit struct {
	file  *MemoryFile
	bytes uint64
	wake  chan<- struct{}
	used  atomic.Uint64 // bytes, at the last look
	since atomic.Uint64 // bytes allocated since
}

// RametLimit refuses allocations in f that go beyond a limit, and sends to wake, without
// waiting, whenever some megabytes have been allocated.
func (f *MemoryFile) RametLimit(bytes uint64, wake chan<- struct{}) {
	rametLimited.Store(&rametLimit{file: f, bytes: bytes, wake: wake})
}

func (f *MemoryFile) rametAllow(length uint64, kind usage.MemoryKind) error {
	l := rametLimited.Load()
	if l == nil || l.file != f {
		return nil
	}
	since := l.since.Add(length)
	if since >= rametStep {
		select {
		case l.wake <- struct{}{}:
		default: // it is about to look
		}
	}
	bound, refusal := l.bytes+rametOver, error(linuxerr.ENOMEM)
	if kind == usage.Tmpfs {
		bound, refusal = l.bytes-min(rametSpare, l.bytes/2), linuxerr.ENOSPC
	}
	if l.used.Load()+since <= bound {
		return nil
	}
	used, err := f.TotalUsage()
	if err != nil || used+length <= bound {
		l.used.Store(used)
		l.since.Store(length)
		return nil
	}
	return refusal
}

// RametUsed says how much memory is used, and whether it is more than the limit.
func (f *MemoryFile) RametUsed() (bytes uint64, over bool) {
	l := rametLimited.Load()
	used, err := f.TotalUsage()
	if err != nil || l == nil || l.file != f {
		return used, false
	}
	l.used.Store(used)
	l.since.Store(0)
	return used, used > l.bytes
}

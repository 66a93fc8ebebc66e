package kernel

// This file is Ramet's and not part of gVisor. gVisor has no limit of its own on the memory of
// what runs in it: without this, a host's limit on the whole sandbox ends it as a whole.

import (
	"fmt"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sync"
)

const (
	// rametExit is how long a process that was ended for its memory may take until it is gone.
	rametExit = 5 * time.Second
	// rametReturn is how long its memory may take until it is given back, and how often that is looked at.
	rametReturn = 500 * time.Millisecond
	rametLook   = 5 * time.Millisecond
)

// rametMemory is the watch over the memory of what runs. A sentry has one kernel at a time.
var rametMemory struct {
	start  sync.Once
	wake   chan struct{}
	kernel atomic.Pointer[Kernel]
	kills  atomic.Uint64
}

// rametKept is what the first process and the sentry's own use of the guest's memory leave to it, in bytes.
const rametKept = 48 << 20

// RametLimitMemory ends the largest process whenever all memory that is used comes near to that many bytes. The first
// process is never ended.
func (k *Kernel) RametLimitMemory(bytes uint64) {
	m := &rametMemory
	m.kernel.Store(k)
	m.start.Do(func() {
		m.wake = make(chan struct{}, 1)
		go rametWatchMemory()
	})
	k.MemoryFile().RametLimit(bytes-min(rametKept, bytes/2), m.wake)
}

// RametMemoryEvents is what cgroups say in memory.events.
func RametMemoryEvents() string {
	n := rametMemory.kills.Load()
	return fmt.Sprintf("low 0\nhigh 0\nmax 0\noom %d\noom_kill %d\noom_group_kill 0\nsock_throttled 0\n", n, n)
}

func rametWatchMemory() {
	for range rametMemory.wake {
		k := rametMemory.kernel.Load()
		for k.rametOverLimit() && k.rametEndLargest() {
			for end := time.Now().Add(rametReturn); k.rametOverLimit() && time.Now().Before(end); {
				time.Sleep(rametLook)
			}
		}
	}
}

func (k *Kernel) rametOverLimit() bool {
	_, over := k.MemoryFile().RametUsed()
	return over
}

// rametEndLargest ends the process that has the most memory, and waits until it is gone. It returns
// false when there is none.
func (k *Kernel) rametEndLargest() bool {
	victim := k.rametLargest()
	if victim == nil {
		return false
	}
	rametMemory.kills.Add(1)
	if err := k.SendExternalSignalThreadGroup(victim, &linux.SignalInfo{Signo: int32(linux.SIGKILL)}); err != nil {
		return false
	}
	gone := make(chan struct{})
	go func() {
		victim.WaitExited()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(rametExit):
	}
	return true
}

func (k *Kernel) rametLargest() *ThreadGroup {
	first := k.GlobalInit()
	var leaders []*Task
	k.tasks.mu.RLock()
	for tg := range k.tasks.Root.tgids {
		if tg != first && tg.leader != nil && tg.liveTasks > 0 {
			leaders = append(leaders, tg.leader)
		}
	}
	k.tasks.mu.RUnlock()
	var largest *ThreadGroup
	var most uint64
	for _, t := range leaders {
		var size uint64
		t.WithMuLocked(func(t *Task) {
			if mm := t.MemoryManager(); mm != nil {
				size = mm.ResidentSetSize()
			}
		})
		if size > most {
			largest, most = t.ThreadGroup(), size
		}
	}
	return largest
}

package kernel

// This file is Ramet's and not part of gVisor.

import "gvisor.dev/gvisor/pkg/sync"

// rametHeld are the tasks that RametHold has stopped. A sentry has one kernel, and is made anew
// for a restore.
var rametHeld struct {
	mu    sync.Mutex
	tasks map[*Task]struct{} // guarded by mu
}

// RametHold stops all tasks but those of the first process, and returns when they stand
// still. Like any external stop it is not saved with the kernel.
func (k *Kernel) RametHold() {
	rametHeld.mu.Lock()
	defer rametHeld.mu.Unlock()
	if rametHeld.tasks == nil {
		rametHeld.tasks = make(map[*Task]struct{})
	}
	// A task can make another one until it stands still, so it takes as many turns as it needs to find none.
	for {
		more := k.rametOthers()
		if len(more) == 0 {
			return
		}
		for _, t := range more {
			t.BeginExternalStop()
			rametHeld.tasks[t] = struct{}{}
		}
		for _, t := range more {
			t.goroutineStopped.Wait()
		}
	}
}

// rametOthers returns the tasks that are not held and not the first process's. rametHeld.mu is locked.
func (k *Kernel) rametOthers() []*Task {
	first := k.GlobalInit()
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	var others []*Task
	for t := range k.tasks.Root.tids {
		if _, held := rametHeld.tasks[t]; !held && t.tg != first {
			others = append(others, t)
		}
	}
	return others
}

// RametRelease lets the tasks go on that RametHold has stopped.
func (k *Kernel) RametRelease() {
	rametHeld.mu.Lock()
	defer rametHeld.mu.Unlock()
	for t := range rametHeld.tasks {
		t.EndExternalStop()
	}
	clear(rametHeld.tasks)
}

// RametAdd adds a system call to a table that is registered already.
func (s *SyscallTable) RametAdd(number uintptr, c Syscall) {
	s.Table[number] = c
	s.lookup[number] = c.Fn
}

// RametSetCores changes how many CPUs there seem to be. Processes that there are keep what they know.
func (k *Kernel) RametSetCores(n uint) { k.applicationCores = n }

package sandbox

import "time"

// StepTime is how long a named step of a lifecycle operation took.
type StepTime struct {
	Name string
	Took time.Duration
}

// MachineExit tells that an instance's machine ended without being asked to.
type MachineExit struct {
	Instance InstanceID
	Reason   string // one sentence
}

// MachineStats is what a machine costs the host now.
type MachineStats struct {
	PSSBytes  int64         // proportional set size of its processes, what they share with each other once
	OwnPages  int64         // guest pages of 4 KiB that it does not share with its snapshot
	DiskBytes int64         // of its writable layer
	CPUTime   time.Duration // of its processes, user and system
}

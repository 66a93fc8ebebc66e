package gvisor

import (
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// The files of an instance directory, besides those of package console. All belong to root;
// the sandbox reaches none by its name.
const (
	toGuest   = "agent-in.fifo"  // the agent's standard input
	fromGuest = "agent-out.fifo" // its standard output
	stateDir  = "runsc"          // what runsc keeps, and the control socket
	bundleDir = "bundle"         // the sandbox's description
	storeDir  = "store"          // where the writable layer's file is, without a name
	linksDir  = "links"          // names for the files of a saved disk from which it was made
	logName   = "runsc.log"      // of the last command of runsc
)

// record is what a later process needs to take the machine over, or to clean up after it. It is
// written before the sandbox is made, and whenever it changes.
type record struct {
	machinefile.Owner
	Instance  sandbox.InstanceID `json:"instance"`
	CreatedAt time.Time          `json:"created_at"`
	Version   string             `json:"version"` // of runsc
	machinefile.Process
	Started  bool `json:"started,omitempty"` // it was resumed once
	VCPUs    int  `json:"vcpus"`
	MemoryMB int  `json:"memory_mb"`
	DiskMB   int  `json:"disk_mb"`
	Golden   bool `json:"golden,omitempty"`
}

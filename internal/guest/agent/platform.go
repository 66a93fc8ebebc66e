package agent

import (
	"context"
	"log/slog"
	"os"

	"ramet.dev/ramet/internal/guest/wire"
)

// DriverVariable names the driver of the machine in the agent's environment, where it is not QEMU.
const DriverVariable = "RAMET_DRIVER"

// Platform is the kernel below the agent, for what it makes different: Linux in a virtual machine,
// or gVisor's.
type Platform interface {
	// Enter is stage 1. It returns nil where there is none; else the process has become
	// stage 2 when all goes well.
	Enter() error
	// Groups are the cgroups in which the user's processes are started.
	Groups() Groups
	// FollowMemory gives the user's processes their share of memory that comes
	// while the machine runs, until ctx ends.
	FollowMemory(ctx context.Context, logger *slog.Logger) error

	// setup lists how a bare root filesystem becomes a machine in which programs can run.
	setup(logger *slog.Logger) []step
	// port opens the stream to the host.
	port() (wire.Port, error)
	// freeze stops the user's processes, and returns when all stand still, or go on again. thaw continues
	// them. Both take a process that is so already.
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
	// setClock sets the wall clock to what it was when the monotonic clock was at; 0 means now.
	setClock(nanos, at int64) error
	// addEntropy makes the kernel's random numbers differ from those of siblings.
	addEntropy(secret []byte) error
	// growDisk grows the root filesystem to its device, which will have at least that many bytes, and
	// returns its size in bytes.
	growDisk(atLeast uint64) (uint64, error)
}

// Groups are directories of cgroups, empty where there are none.
type Groups struct {
	User  string // all processes that are not the agent's, in the two below it
	Main  string // where processes are started
	Spare string // where they are started while there is no room in Main
}

// Here returns the platform that this process runs on.
func Here() Platform {
	if os.Getenv(DriverVariable) == "gvisor" {
		return sentry{}
	}
	return virtualMachine{freezer{UserCgroup}}
}

// virtualMachine is Linux, booted by QEMU.
type virtualMachine struct{ freezer }

var userGroups = Groups{UserCgroup, MainCgroup, SpareCgroup}

func (virtualMachine) Groups() Groups { return userGroups }

func (virtualMachine) setup(logger *slog.Logger) []step {
	return []step{
		{"mount filesystems", mountFilesystems},
		{"make device links", linkDevices},
		{"make cgroups", makeCgroups},
		{"set limits", setLimits},
		{"allow ping", allowPing},
		{"set hostname", setInitialHostname},
		{"bring up network", func() error { return setupNetwork(logger) }},
	}
}

func (virtualMachine) port() (wire.Port, error) {
	device, err := FindPort()
	if err != nil {
		return nil, err
	}
	return wire.OpenPort(device)
}

func (virtualMachine) setClock(nanos, at int64) error          { return setClock(nanos, at) }
func (virtualMachine) addEntropy(secret []byte) error          { return addEntropy(secret) }
func (virtualMachine) growDisk(atLeast uint64) (uint64, error) { return growDisk(atLeast) }

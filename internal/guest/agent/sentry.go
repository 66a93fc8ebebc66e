package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/guest/wire"
)

// sentry is gVisor's kernel. It gives the machine its mounts of /proc, /sys and /dev, its address
// and its routes before the agent runs. Its clock and its random numbers are the host's.
type sentry struct{}

// holdCall is a system call that cmd/ramet-runsc adds to gVisor for its first process: 1 stops
// all tasks of other processes and returns when they stand still, 0 lets them go on. A restored sandbox
// begins as after 1.
const holdCall = 1900

// Enter has nothing to do: the agent is in the root filesystem.
func (sentry) Enter() error { return nil }

// Groups are as in a virtual machine. gVisor bounds processes in them, and ends all of one; memory it bounds
// in the sandbox as a whole.
func (sentry) Groups() Groups { return userGroups }

// FollowMemory has nothing to do: gVisor knows the memory.
func (sentry) FollowMemory(ctx context.Context, _ *slog.Logger) error {
	<-ctx.Done()
	return nil
}

func (sentry) setup(*slog.Logger) []step {
	return []step{
		{"unmount /tmp", unmountTmp},
		{"mount shared memory", sharedMemory.mount},
		{"mount cgroups", func() error { return mountCgroups("nsdelegate") }},
		{"make cgroups", makeCgroups},
		{"make directories", makeDirectories},
		{"make device links", linkDevices},
		{"set limits", setLimits},
		{"set hostname", setInitialHostname},
		{"name the resolver", writeResolver},
	}
}

// unmountTmp takes away the tmpfs that gVisor puts there: files in it would be memory, and not on
// the disk that a snapshot keeps.
func unmountTmp() error {
	if err := unix.Unmount("/tmp", 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// port takes the standard streams, which are the agent's only in this. What the agent says
// itself goes to its standard error.
func (sentry) port() (wire.Port, error) {
	in, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("take standard input: %w", err)
	}
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take standard output: %w", err), unix.Close(in))
	}
	port, err := wire.OpenPipes(in, out)
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(unix.Dup3(int(null.Fd()), 0, 0), unix.Dup3(int(null.Fd()), 1, 0), null.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replace the standard streams: %w", err), port.Close())
	}
	return port, nil
}

func (sentry) hold(on uintptr) error {
	if _, _, errno := unix.Syscall(holdCall, on, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func (s sentry) freeze(context.Context) error { return s.hold(1) }
func (s sentry) thaw(context.Context) error   { return s.hold(0) }

func (sentry) setClock(int64, int64) error { return nil }
func (sentry) addEntropy([]byte) error     { return nil }

// growDisk tells the size: the layer of the disk was grown outside.
func (sentry) growDisk(atLeast uint64) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return 0, err
	}
	if size := st.Blocks * uint64(st.Bsize); size >= atLeast {
		return size, nil
	}
	return 0, fmt.Errorf("the disk has %d bytes, not %d", st.Blocks*uint64(st.Bsize), atLeast)
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// What the user's processes do not get, so that the agent answers and there is
// room to clean up whatever they do.
const (
	// agentMB is left to the agent and to what the kernel charges to nobody.
	agentMB = 48
	// spareMB and spareTasks are what the spare group has for itself: enough for
	// an interpreter, or for a shell and the programs that end others.
	spareMB    = 48
	spareTasks = 64
	// minTasks and maxTasks bound the processes and threads in the main group;
	// in between it may have one for each MB. The smallest processes take about
	// half of that, so that a fork bomb meets this limit before that of memory.
	minTasks = 1024
	maxTasks = 16384
	// agentTasks is how many threads the kernel allows beyond those.
	agentTasks = 1024
)

// makeCgroups makes the groups of everything that the user starts: the main one,
// and a spare one that has half of the CPU, and some memory and processes of its
// own, for when the main one is full. The agent
// stays in the root group: there it competes as one task against that whole
// group, so it gets its share of the CPU however many processes the user has.
// The kernel's out-of-memory killer never takes PID 1.
func makeCgroups() error {
	for _, controller := range []string{"cpu", "memory", "pids"} {
		err := os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+"+controller), 0)
		if err != nil {
			return fmt.Errorf("enable %s: %w", controller, err)
		}
	}
	_ = os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+io"), 0) // where the kernel has it
	if err := makeGroup(UserCgroup); err != nil {
		return err
	}
	if err := os.WriteFile(UserCgroup+"/cgroup.subtree_control", []byte("+cpu +memory +pids"), 0); err != nil {
		return fmt.Errorf("enable the limits of the user's groups: %w", err)
	}
	if err := errors.Join(makeGroup(MainCgroup), makeGroup(SpareCgroup)); err != nil {
		return err
	}
	return limitGroups()
}

func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// limitGroups sets the limits that fit the memory that the machine has now.
func limitGroups() error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	var m agentv1.MetricsResponse
	parseMeminfo(string(text), &m)
	l := groupLimits(m.MemoryTotalBytes)
	// The kernel counts with the memory of the boot, and may have more by now.
	// gVisor has no such setting.
	if err := raise("/proc/sys/kernel/threads-max", l.tasks+spareTasks+agentTasks); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range []struct {
		file  string
		value uint64
	}{
		{UserCgroup + "/pids.max", l.tasks + spareTasks},
		{UserCgroup + "/memory.max", l.memory + spareMB<<20},
		{MainCgroup + "/pids.max", l.tasks},
		{MainCgroup + "/memory.max", l.memory},
		{SpareCgroup + "/pids.max", spareTasks},
	} {
		if err := os.WriteFile(f.file, []byte(strconv.FormatUint(f.value, 10)), 0); err != nil {
			return fmt.Errorf("limit the user's processes: %w", err)
		}
	}
	return nil
}

// limits are those of the main group.
type limits struct {
	memory uint64 // bytes
	tasks  uint64
}

// groupLimits returns the limits for a machine with that much memory.
func groupLimits(total uint64) limits {
	l := limits{memory: total / 2, tasks: min(max(total>>20, minTasks), maxTasks)}
	if kept := uint64(agentMB+spareMB) << 20; total > 2*kept {
		l.memory = total - kept
	}
	return l
}

// raise writes a kernel setting unless it is as large already.
func raise(file string, value uint64) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	now, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if now >= value {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.FormatUint(value, 10)), 0)
}

// FollowMemory gives the user's processes their share of what is plugged while
// the machine runs, until ctx ends.
func (virtualMachine) FollowMemory(ctx context.Context, logger *slog.Logger) error {
	events, err := openUevents()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	defer events.Close()
	buf := make([]byte, 4096)
	for {
		// What came before the first event is in, too.
		if err := limitGroups(); err != nil {
			logger.Warn("the limits of the user's processes do not follow the memory", "error", err)
		}
		for {
			n, err := events.Read(buf)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return fmt.Errorf("read uevent: %w", err)
			}
			if err != nil || memoryEvent(buf[:n]) {
				break
			}
		}
	}
}

// memoryEvent says whether a message of the kernel is about a block of memory
// that can be used from now on, or not any more: "online@/devices/system/memory/…".
func memoryEvent(message []byte) bool {
	head, _, _ := strings.Cut(string(message), "\x00")
	action, path, _ := strings.Cut(head, "@")
	return (action == "online" || action == "offline") && filepath.Dir(path) == "/devices/system/memory"
}

// Command ramet-agent is PID 1 of a guest. In a virtual machine it is /init of the initramfs first, then
// the same program in the root filesystem. See package internal/guest/agent.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/guest/agent"
	"ramet.dev/ramet/internal/guest/exec"
	"ramet.dev/ramet/internal/guest/reap"
)

// spoolDir holds the output of runs that is too long for memory.
const spoolDir = "/var/lib/ramet-agent/runs"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println(agent.Version)
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "ramet-agent is the first process of a guest and does not run elsewhere")
		os.Exit(2)
	}
	err := boot()
	fmt.Fprintf(os.Stderr, "ramet-agent: %v\n", err)
	// The console has the reason. Without its agent the machine is of no use,
	// and a clean power-off says more than the kernel's panic.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1)
}

// boot returns only when the machine cannot go on.
func boot() error {
	platform := agent.Here()
	if err := platform.Enter(); err != nil {
		return fmt.Errorf("stage 1: %w", err)
	}
	os.Clearenv()
	tune()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	stop := ignoreSignals()
	defer stop()
	if err := agent.Setup(platform, logger); err != nil {
		return fmt.Errorf("stage 2: %w", err)
	}
	reaper := reap.New()
	defer reaper.Close()
	groups := platform.Groups()
	runs, err := exec.New(exec.Config{
		Reaper: reaper, Logger: logger, SpoolDir: spoolDir,
		Cgroup: groups.User, MainCgroup: groups.Main, SpareCgroup: groups.Spare,
	})
	if err != nil {
		return fmt.Errorf("stage 2: %w", err)
	}
	defer runs.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { // while the host connects
		if err := runs.StartREPL(ctx); err != nil {
			logger.Warn("no interpreter", "error", err)
		}
	})
	background.Go(func() {
		if err := platform.FollowMemory(ctx, logger); err != nil {
			logger.Error("the limits of the user's processes stay as they are", "error", err)
		}
	})
	defer background.Wait()
	defer cancel()
	return fmt.Errorf("serve: %w", agent.Serve(ctx, platform, runs, logger))
}

// tune fits the Go runtime to a small and perhaps emulated machine. One thread
// at a time runs Go code: a call is a chain of hand-overs between goroutines,
// and each costs less on one CPU than a wake-up of another (a third of a small
// call's time under emulation). The heap is a few megabytes; collecting it a
// little later costs little memory and saves most of the work while files
// stream.
func tune() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(200)
	debug.SetMemoryLimit(128 << 20)
}

// ignoreSignals takes the signals that would end the agent; the kernel delivers
// to PID 1 what it has a handler for, and Go has one for each. They are taken
// rather than ignored, because children would inherit the latter.
func ignoreSignals() (stop func()) {
	taken := make(chan os.Signal, 1) // full or not, a signal goes no further
	signal.Notify(taken, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGPIPE)
	return func() { signal.Stop(taken) }
}

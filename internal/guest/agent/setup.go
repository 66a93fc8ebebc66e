package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Setup is the first half of stage 2: it makes of a bare root filesystem a
// machine in which programs can run.
func Setup(p Platform, logger *slog.Logger) error {
	unix.Umask(0o022)
	return runSteps(p.setup(logger))
}

const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// mountCgroups mounts the cgroups of version 2. gVisor knows fewer options.
func mountCgroups(options string) error {
	return mountPoint{"cgroup2", cgroupRoot, "cgroup2", quiet, options}.mount()
}

var sharedMemory = mountPoint{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"}

func mountFilesystems() error {
	// As service managers do: container engines expect a shared root.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the root mount: %w", err)
	}
	for _, m := range []mountPoint{
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
		sharedMemory,
	} {
		if err := m.mount(); err != nil {
			return err
		}
	}
	if err := mountCgroups("nsdelegate,memory_recursiveprot"); err != nil {
		return err
	}
	// Nice to have; a kernel may lack it.
	_ = mountPoint{"mqueue", "/dev/mqueue", "mqueue", quiet, ""}.mount()
	return makeDirectories()
}

// makeDirectories makes what a service manager makes at its start.
func makeDirectories() error {
	for path, mode := range map[string]os.FileMode{
		"/run/lock": 0o777 | os.ModeSticky,
		"/run/user": 0o755,
		"/tmp":      0o777 | os.ModeSticky,
	} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	return nil
}

func linkDevices() error {
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func setLimits() error {
	// By package syscall, which then does not reset it in children.
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 65536, Max: 1 << 20})
}

// allowPing lets every user ping, as desktop distributions do.
func allowPing() error {
	err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func setInitialHostname() error {
	name := "ramet"
	if text, err := os.ReadFile("/etc/hostname"); err == nil {
		if s := strings.TrimSpace(string(text)); validHostname(s) {
			name = s
		}
	}
	return unix.Sethostname([]byte(name))
}

// FindPort returns the device of the agent's port. The host announces its ports
// some time after the driver is loaded.
func FindPort() (string, error) {
	var device string
	err := awaitUevent(deviceTimeout, func() (bool, error) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return false, err
		}
		for _, path := range names {
			text, err := os.ReadFile(path)
			if err != nil || strings.TrimSpace(string(text)) != portName {
				continue
			}
			device = "/dev/" + filepath.Base(filepath.Dir(path))
			_, err = os.Stat(device)
			return err == nil, nil
		}
		return false, nil
	})
	if err != nil {
		return "", fmt.Errorf("find port %s: %w", portName, err)
	}
	return device, nil
}

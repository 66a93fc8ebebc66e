package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// deviceTimeout bounds the wait for a device that the kernel has yet to find.
const deviceTimeout = 30 * time.Second

// step is one named part of the boot.
type step struct {
	name string
	run  func() error
}

// runSteps runs steps in order and stops at the first that fails.
func runSteps(steps []step) error {
	for _, s := range steps {
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// Enter is stage 1. It does nothing in stage 2.
func (virtualMachine) Enter() error {
	if os.Getenv(StageVariable) != "" {
		return nil
	}
	return runSteps([]step{
		{"mount kernel filesystems", mountKernel},
		{"open console", openConsole},
		{"load modules", loadModules},
		{"wait for " + rootDevice, awaitRootDevice},
		{"mount root", mountRoot},
		{"install agent", installAgent},
		{"switch root", switchRoot},
		{"start stage 2", func() error {
			return unix.Exec(Program, []string{Program}, []string{StageVariable + "=2", "PATH=" + defaultPath})
		}},
	})
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

type mountPoint struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mountPoint) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
	}
	return nil
}

func mountKernel() error {
	for _, m := range []mountPoint{
		{"proc", "/proc", "proc", quiet, ""},
		{"sysfs", "/sys", "sysfs", quiet, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
	} {
		if err := m.mount(); err != nil && !errors.Is(err, unix.EBUSY) {
			return err // EBUSY: the kernel has mounted devtmpfs itself
		}
	}
	return nil
}

// openConsole makes the console the standard streams. The kernel does so only
// when the initramfs has a /dev/console of its own.
func openConsole() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil // no console is no reason not to boot
	}
	for i := range 3 {
		if err := unix.Dup3(fd, i, 0); err != nil && fd != i {
			return err
		}
	}
	if fd > 2 {
		return unix.Close(fd)
	}
	return nil
}

func awaitRootDevice() error {
	return awaitUevent(deviceTimeout, func() (bool, error) {
		_, err := os.Stat(rootDevice)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}

func mountRoot() error {
	m := mountPoint{rootDevice, newRoot, "ext4", unix.MS_NOATIME, ""}
	return m.mount()
}

// installAgent copies the running program to its place in the new root. It is
// a filesystem of its own, read-only afterwards: upgrades of the guest's
// packages, and slips of its root user, do not reach it.
func installAgent() error {
	run := mountPoint{"tmpfs", newRoot + "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=20%"}
	if err := run.mount(); err != nil {
		return err
	}
	home := mountPoint{"ramet", newRoot + Home, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=32m"}
	if err := home.mount(); err != nil {
		return err
	}
	if err := copyProgram("/proc/self/exe", newRoot+Program); err != nil {
		return err
	}
	return unix.Mount("", home.target, "", home.flags|unix.MS_REMOUNT|unix.MS_RDONLY, home.data)
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// switchRoot makes the new root the root, and frees the memory of the old one.
func switchRoot() error {
	for _, name := range []string{"/dev", "/proc", "/sys"} {
		if err := os.MkdirAll(newRoot+name, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(name, newRoot+name, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", name, err)
		}
	}
	if err := emptyFilesystem("/"); err != nil {
		return fmt.Errorf("free the initramfs: %w", err)
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// emptyFilesystem removes all that is on the same filesystem as dir.
func emptyFilesystem(dir string) error {
	var here unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Dev != here.Dev {
			continue // a mount point, such as the new root
		}
		if e.IsDir() {
			if err := emptyFilesystem(path); err != nil {
				return err
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return err // EBUSY, ENOTEMPTY: something is mounted in it
		}
	}
	return nil
}

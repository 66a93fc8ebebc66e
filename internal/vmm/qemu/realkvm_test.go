//go:build integration

package qemu_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm/qemu"
	"ramet.dev/ramet/internal/vmm/vmmtest"
)

// TestRealProbeKVM decides by booting. Whatever the answer is, it has a reason,
// comes in time, is remembered, and leaves nothing behind.
//
// It runs in a mount namespace of its own, where everybody may open /dev/kvm if
// there is one, so that the probe gets as far as booting on every host.
func TestRealProbeKVM(t *testing.T) {
	const inside = "RAMET_TEST_OPEN_KVM"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestRealProbeKVM$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	there := openKVM(t)
	state := t.TempDir()
	d, err := qemu.New(qemu.Config{StateDir: state, UIDBase: 801000, UIDCount: 10, Cgroup: "ramet-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	img := vmmtest.Image(t)
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	p, err := d.ProbeKVM(ctx, img, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("usable %v: %s (%s)", p.Usable, p.Reason, p.Took)
	if p.Reason == "" || p.At.IsZero() || p.Took > 20*time.Second {
		t.Errorf("not a good answer: %+v", p)
	}
	want := sandbox.IsolationEmulated
	if p.Usable {
		want = sandbox.IsolationKVM
	}
	if d.Isolation() != want {
		t.Errorf("isolation %s", d.Isolation())
	}
	again, err := d.ProbeKVM(ctx, img, false)
	if err != nil || there && !again.At.Equal(p.At) {
		t.Errorf("the answer was not remembered: %+v, %v", again, err)
	}
	left, err := filepath.Glob(filepath.Join(state, "kvm-probe-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// openKVM puts a device node that everybody may open over /dev/kvm. It says
// whether there is one.
func openKVM(t *testing.T) bool {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/dev/kvm", &st); err != nil {
		return false
	}
	dir := t.TempDir()
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	node := filepath.Join(dir, "kvm")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(st.Rdev)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(node, "/dev/kvm", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/dev/kvm", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}

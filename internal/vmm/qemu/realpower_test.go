//go:build integration

package qemu_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/durable/durabletest"
	"ramet.dev/ramet/internal/vmm"
	"ramet.dev/ramet/internal/vmm/qemu"
	"ramet.dev/ramet/internal/vmm/vmmtest"
)

// TestRealPowerFailsDuringASave saves a machine, and builds at each step that the save
// makes on the disk what a power cut would leave. What has the final name is whole, and
// once the save is acknowledged it is there, and starts.
func TestRealPowerFailsDuringASave(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	base := t.TempDir()
	root, keep := filepath.Join(base, "snapshots"), filepath.Join(base, "keep")
	if err := errors.Join(os.Mkdir(root, 0o700), os.Mkdir(keep, 0o700)); err != nil {
		t.Fatal(err)
	}
	rec, err := durabletest.New(root, keep)
	if err != nil {
		t.Fatal(err)
	}
	disk := durable.New(rec)
	d, err := qemu.New(qemu.Config{
		Accel: "tcg", StateDir: filepath.Join(base, "state"), UIDBase: 800000, UIDCount: 200, Cgroup: "ramet-test", Disk: disk, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), rec.Close()); err != nil {
			t.Error(err)
		}
	})
	s := vmmtest.New(t, vmmtest.Subject{Image: vmmtest.Image(t)}, d)
	m, a := s.Restored(t, s.Golden)
	a.Call("set", "who", "saved")
	a.Call("wdisk", 1<<20, 5, 65536)
	onDisk := a.Call("rdisk", 1<<20, 65536)

	// Each image is looked at and removed at once: it is large.
	steps := 0
	look := func(before string, op durable.Op, must bool) {
		steps++
		for i, loss := range []durabletest.Loss{durabletest.Everything, durabletest.Content, durabletest.Some(uint64(steps))} {
			left := filepath.Join(base, fmt.Sprintf("left-%d-%d", steps, i))
			if err := errors.Join(os.Mkdir(left, 0o700), rec.Image(left, loss)); err != nil {
				t.Fatalf("build what is left %s %s: %v", before, op, err)
			}
			final := filepath.Join(left, "final")
			if _, err := os.Stat(final); err == nil {
				if err := d.Verify(ctx, final); err != nil {
					t.Errorf("%s %s, losing %s: %v", before, op, loss, err)
				}
			} else if !errors.Is(err, fs.ErrNotExist) || must {
				t.Errorf("%s %s, losing %s: %v", before, op, loss, err)
			}
			if must && i == 0 {
				_, b := s.Restored(t, final)
				b.Want("saved", "get", "who")
				b.Want(onDisk, "rdisk", 1<<20, 65536)
			}
			if err := os.RemoveAll(left); err != nil {
				t.Error(err)
			}
		}
	}
	rec.OnStep = func(op durable.Op) { look("before", op, false) }
	tmp := filepath.Join(root, "final.tmp")
	if err := disk.Mkdir("test", tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	saving, err := m.Save(ctx, tmp, vmm.SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.Call("set", "who", "later") // the machine runs on, and writes, while its snapshot is completed
	a.Call("wdisk", 1<<20, 9, 65536)
	if err := errors.Join(saving.Finish(ctx), saving.Close()); err != nil {
		t.Fatal(err)
	}
	if err := disk.Place("test", tmp, filepath.Join(root, "final")); err != nil {
		t.Fatal(err)
	}
	rec.OnStep = nil
	if steps < 10 {
		t.Errorf("a save of %d steps", steps)
	}
	look("after", durable.Op{Label: "all"}, true)
}

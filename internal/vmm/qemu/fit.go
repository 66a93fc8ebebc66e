package qemu

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm"
)

// tscTolerance is how much the rate of the time stamp counter may differ
// before a restored guest's clock would be wrong: measuring it is about this good.
const tscTolerance = 0.005

// MismatchError is a snapshot that this host or request does not fit.
type MismatchError struct {
	Field     string
	Want, Got string // the snapshot's, and this host's
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the snapshot was made with %s %q, this is %q", e.Field, e.Want, e.Got)
}

// Unwrap makes it a vmm.ErrSnapshotMismatch.
func (e *MismatchError) Unwrap() error { return vmm.ErrSnapshotMismatch }

func mismatch(field, want, got string) error {
	e := &MismatchError{field, want, got}
	return &sandbox.Error{Kind: sandbox.Unsupported, Code: "snapshot_mismatch", Message: e.Error(), Err: e}
}

// fits compares what a snapshot was made with to what it would be restored with.
func (d *Driver) fits(m *snapshot.Manifest, rec record, imageHash string) error {
	for _, f := range []struct{ field, want, got string }{
		{"driver", m.Driver, d.Name()},
		{"machine shape", strconv.Itoa(m.ShapeVersion), strconv.Itoa(shapeVersion)},
		{"machine type", m.Machine, machineType},
		{"acceleration", m.Accel, rec.Accel},
		{"CPU model", m.CPUModel, rec.CPUModel},
		{"image", m.ImageHash, imageHash},
		{"vCPU count", strconv.Itoa(m.VCPUs), strconv.Itoa(rec.VCPUs)},
		// Device states are stable within a series.
		{"QEMU version", series(m.DriverVersion), series(rec.QEMUVersion)},
	} {
		if f.want != f.got {
			return mismatch(f.field, f.want, f.got)
		}
	}
	if m.TSCKHz != 0 && d.tsc != 0 {
		if off := float64(d.tsc-m.TSCKHz) / float64(m.TSCKHz); off > tscTolerance || off < -tscTolerance {
			return mismatch("time stamp counter (kHz)", strconv.FormatInt(m.TSCKHz, 10), strconv.FormatInt(d.tsc, 10))
		}
	}
	return nil
}

// fitsDisk is fits for the disk alone: every machine can boot from it.
func (d *Driver) fitsDisk(m *snapshot.Manifest, imageHash string) error {
	if m.Driver != d.Name() {
		return mismatch("driver", m.Driver, d.Name())
	}
	if m.ImageHash != imageHash {
		return mismatch("image", m.ImageHash, imageHash)
	}
	return nil
}

// Verify implements vmm.Driver.
func (d *Driver) Verify(ctx context.Context, dir string) error {
	m, err := snapshot.Load(dir)
	if err != nil {
		return err
	}
	return m.Verify(ctx, dir)
}

// series is "7.2" of "7.2.22".
func series(version string) string {
	if i := strings.LastIndexByte(version, '.'); i > 0 {
		return version[:i]
	}
	return version
}

// newManifest describes a snapshot of the machine, without its files.
func (m *Machine) newManifest(rec record, memoryMB int) *snapshot.Manifest {
	return &snapshot.Manifest{
		Format: snapshot.Format, CreatedAt: time.Now().UTC(),
		Driver: m.d.Name(), DriverVersion: rec.QEMUVersion, Accel: rec.Accel, Machine: machineType,
		CPUModel: rec.CPUModel, HostCPU: m.d.cpu, TSCKHz: m.d.tsc,
		ShapeVersion: shapeVersion, VCPUs: rec.VCPUs, MemoryMB: memoryMB, DiskMB: rec.DiskMB, PlugMB: rec.PlugMB,
		ImageHash: m.image.Hash,
	}
}

// baseOf refers to the base that the machine's memory is mapped from.
func (m *Machine) baseOf(rec record) (*snapshot.Base, error) {
	b := &snapshot.Base{MemorySHA256: rec.BaseMemory, Dir: rec.BaseDir}
	if rec.BaseMemory == "" {
		return &snapshot.Base{}, nil
	}
	if !filepath.IsAbs(rec.BaseDir) {
		return nil, errors.New("the base snapshot's directory is not absolute")
	}
	rel, err := filepath.Rel(filepath.Dir(m.image.RootExt4), rec.BaseDir)
	if err == nil && filepath.IsLocal(rel) {
		b.Dir = rel
	}
	return b, nil
}

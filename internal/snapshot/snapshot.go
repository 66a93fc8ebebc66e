// Package snapshot owns the files of a snapshot on disk: the manifest, its
// checksums, memory images and page files, and how they are written so that a
// power cut never leaves half of one that looks whole. It knows nothing of
// monitors; the drivers say what goes in.
//
// A snapshot is a directory. A base snapshot ("golden") holds the whole boot
// memory; a delta holds the pages that differ from its base. Either holds the
// device state and every disk layer above the image, so that it needs nothing
// but the image and (a delta) its base. Files are written beside their name,
// synced and renamed; the manifest comes last. The caller makes the directory
// under another name and renames it when it is complete.
//
// Start reading at Manifest, then Load and Manifest.Verify.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/durable"
)

// ManifestName is the file that makes a directory a snapshot.
const ManifestName = "manifest.json"

// Format is the version of the manifest and the files that this package writes.
const Format = 1

// maxManifest bounds a manifest, in bytes.
const maxManifest = 1 << 20

// Manifest describes a snapshot.
type Manifest struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"created_at"`

	Driver        string `json:"driver"`         // "qemu"
	DriverVersion string `json:"driver_version"` // of the monitor, "7.2.22"
	Accel         string `json:"accel"`          // "kvm", "tcg"
	Machine       string `json:"machine"`        // versioned machine type
	CPUModel      string `json:"cpu_model"`      // as the monitor was told
	HostCPU       string `json:"host_cpu"`       // a hint for people
	TSCKHz        int64  `json:"tsc_khz"`        // rate of the host's time stamp counter, 0 when unknown

	ShapeVersion int `json:"shape_version"`
	VCPUs        int `json:"vcpus"`
	MemoryMB     int `json:"memory_mb"`         // that the guest had
	BootMB       int `json:"boot_mb,omitempty"` // of it, what the guest booted with; 0 in old snapshots: 512
	DiskMB       int `json:"disk_mb"`
	PlugMB       int `json:"plug_mb"` // the most that was ever hot-plugged

	ImageHash string `json:"image_hash"`
	// Base is the snapshot that the pages of a delta differ from; nil for a base.
	Base *Base `json:"base,omitempty"`

	State  File   `json:"state,omitzero"`   // device state; none in a snapshot of the disk only
	Memory *File  `json:"memory,omitempty"` // boot memory of a base, sparse
	Pages  *File  `json:"pages,omitempty"`  // memory that is not in Memory or the base's
	Layers []File `json:"layers"`           // disk layers above the image, lowest first
	Extra  []File `json:"extra,omitempty"`  // what else the driver needs to restore the memory
}

// Base refers to the base of a delta.
type Base struct {
	// Dir is relative to the image's directory where the base is below it, else absolute.
	Dir          string `json:"dir"`
	MemorySHA256 string `json:"memory_sha256"`
}

// File is one file of a snapshot.
type File struct {
	Name   string `json:"name"` // in the snapshot's directory
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// CorruptError is a snapshot whose files are not what its manifest says.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("snapshot file %s is damaged: %s", e.Path, e.Reason)
}

// Load reads and checks the manifest in dir. It does not read the other files.
func Load(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestName)
	f, err := File{Name: ManifestName}.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read snapshot manifest: %w", err)
	}
	if len(data) > maxManifest {
		return nil, &CorruptError{path, "the manifest is too large"}
	}
	return parse(path, data)
}

func parse(path string, data []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, &CorruptError{path, err.Error()}
	}
	if m.Format != Format {
		return nil, &CorruptError{path, fmt.Sprintf("format %d is not known (this program writes %d)", m.Format, Format)}
	}
	for _, f := range m.Files() {
		if f.Size < 0 || f.Name == "" || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." {
			return nil, &CorruptError{path, fmt.Sprintf("bad file entry %q", f.Name)}
		}
	}
	if m.DiskOnly() {
		if m.Memory != nil || m.Base != nil || m.Pages != nil {
			return nil, &CorruptError{path, "it has memory but no device state"}
		}
		return &m, nil
	}
	if m.Memory == nil && m.Base == nil {
		return nil, &CorruptError{path, "it has neither memory nor a base"}
	}
	if m.Base != nil && m.Pages == nil {
		return nil, &CorruptError{path, "it has a base but no pages"}
	}
	return &m, nil
}

// DiskOnly says that the snapshot has neither memory nor device state.
func (m *Manifest) DiskOnly() bool { return m.State.Name == "" }

// Files lists every file that the manifest names.
func (m *Manifest) Files() []File {
	var files []File
	if !m.DiskOnly() {
		files = append(files, m.State)
	}
	if m.Memory != nil {
		files = append(files, *m.Memory)
	}
	if m.Pages != nil {
		files = append(files, *m.Pages)
	}
	return append(append(files, m.Extra...), m.Layers...)
}

// Save writes the manifest into dir, synced. Write it after all other files.
func (m *Manifest) Save(disk *durable.Disk, dir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode snapshot manifest: %w", err)
	}
	return disk.WriteFile("snapshot.manifest", filepath.Join(dir, ManifestName), append(data, '\n'), 0o644)
}

// SaveVolatile writes the manifest of a snapshot that need not survive a power cut.
func (m *Manifest) SaveVolatile(dir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode snapshot manifest: %w", err)
	}
	return WriteVolatile(dir, ManifestName, data)
}

// WriteVolatile writes a file of a snapshot that need not survive a power cut.
func WriteVolatile(dir, name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Verify reads every file in dir that the manifest names and checks its size
// and checksum. It takes about a second per gigabyte.
func (m *Manifest) Verify(ctx context.Context, dir string) error {
	var errs []error
	for _, f := range m.Files() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if m.Pages != nil && f.Name == m.Pages.Name && f.SHA256 == "" {
			errs = append(errs, f.verifyPages(dir))
			continue
		}
		errs = append(errs, f.Verify(dir))
	}
	return errors.Join(errs...)
}

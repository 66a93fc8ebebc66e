package qemu

import (
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapshot"
	"ramet.dev/ramet/internal/vmm/machinefile"
)

// The files of an instance directory. The directory and all in it but the
// disk layers belong to root; QEMU reaches nothing here by path.
const (
	qmpName     = "qmp.sock"
	agentName   = "agent.sock"
	networkName = "net.sock"
	layerPrefix = "disk"
	layerSuffix = ".qcow2"
)

// record is what a later process needs to take the machine over, or to clean
// up after it. It is written before the process starts and again after.
type record struct {
	machinefile.Owner
	Instance  sandbox.InstanceID `json:"instance"`
	CreatedAt time.Time          `json:"created_at"`
	UID       int                `json:"uid"`
	machinefile.Process

	Accel       string `json:"accel"`
	CPUModel    string `json:"cpu_model"`
	QEMUVersion string `json:"qemu_version"`
	VCPUs       int    `json:"vcpus"`
	DiskMB      int    `json:"disk_mb"`
	// BootMB is the boot memory; 0 in records of the first version: firstBootMB.
	BootMB int `json:"boot_mb,omitempty"`
	// PlugMB is the most that was ever asked of virtio-mem: where its memory can be.
	PlugMB int  `json:"plug_mb"`
	Golden bool `json:"golden,omitempty"`
	// BaseMemory is the checksum of the golden memory that the machine maps, or
	// empty when it started from nothing; BaseDir is that golden's directory.
	BaseMemory string `json:"base_memory,omitempty"`
	BaseDir    string `json:"base_dir,omitempty"`
	// Layers are the machine's disk layers above the image, lowest first. The last one
	// is writable. Size and checksum are known of layers that came from the disk.
	Layers []snapshot.File `json:"layers"`
	// SharedLayers is how many of the lowest belong to the golden snapshot.
	SharedLayers int `json:"shared_layers,omitempty"`
}

func (r record) bootMB() int { return bootMBOr(r.BootMB) }

func bootMBOr(mb int) int {
	if mb == 0 {
		return firstBootMB
	}
	return mb
}

package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/network/layout"
	"ramet.dev/ramet/internal/sandbox"
)

// Machine shape v1. A snapshot only loads into a machine with the same
// devices in the same places, so nothing here may change, and nothing may be
// added, without a new shape version.
const (
	shapeVersion = 1
	machineType  = "pc-q35-7.2"

	// firstBootMB is the boot memory of machines and snapshots that do not say
	// what theirs is, in MB: those of the first version.
	firstBootMB = sandbox.MinMemoryMB
	// plugBlockMB is the unit of virtio-mem, and of sizes that it takes.
	plugBlockMB = 2

	// Ids of QEMU objects; the memory blocks of snapshots carry the first two.
	bootMemoryID = "ram0"
	plugMemoryID = "vmem0"
	plugDeviceID = "virtiomem0"
	diskDeviceID = "disk0"
	agentPort    = "ramet.agent"
	// noDiskNode is the disk of a process that waits.
	noDiskNode = "nodisk"
)

// translationCacheMB bounds the code that TCG keeps per machine. It is
// allocated as it fills; Python with its usual libraries takes about 40 MB.
const translationCacheMB = 128

// Slots of the add-fd sets that hold the machine's files.
const (
	consoleSet  = 1
	firstDisk   = 10 // the disk chain: one set a layer, lowest first
	firstNewSet = 100
)

// plugMemoryMB is the most that can be plugged into a machine, in MB.
func plugMemoryMB(bootMB int) int { return sandbox.MaxMemoryMB - bootMB }

// commandLine is all that decides the arguments of a machine. Descriptors are
// numbers in QEMU's own table.
type commandLine struct {
	Binary   string
	Name     string // shown in the process list
	Accel    string // "tcg" or "kvm"
	CPUModel string
	VCPUs    int
	// BootMB is the block that the machine boots with: the part that is shared
	// with a golden snapshot. All other memory is hot-plugged.
	BootMB int

	// Kernel and Initrd are open files by /proc/self/fd; empty in a machine
	// that is restored: it never boots again, and QEMU would keep them in its heap.
	Kernel, Initrd string
	Append         string

	MemoryFD       int
	MemoryShared   bool // golden: writes go to the file
	MemoryReadOnly bool // QEMU can open the file read-only (8.2 and later)

	// Disks is the chain, lowest first; the last one is writable. A process that waits has
	// none yet, but a disk of NoDiskMB with nothing in it.
	Disks    []diskArg
	NoDiskMB int
	// Descriptors of FIFOs and listening sockets.
	ConsoleFD, QMPFD, AgentFD, NetworkFD int

	Incoming bool // wait for a device state before the vCPUs can run
}

// diskArg is one layer. It is opened through an add-fd set, so QEMU never
// needs a path of the host.
type diskArg struct {
	Node   string
	Format string // "raw" or "qcow2"
	// FDs go into the layer's set: read-only, and for the top also read-write,
	// because QEMU reopens it read-only when it becomes a backing file.
	FDs []int
}

// args is a pure function of c.
func (c commandLine) args() []string {
	a := []string{
		"-name", "guest=" + c.Name,
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-S",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-machine", machineType + ",memory-backend=" + bootMemoryID + ",suppress-vmdesc=on,dump-guest-core=off,graphics=off,usb=off,vmport=off,sata=off,smbus=off,i8042=off",
		"-global", "migration.send-configuration=off",
		"-accel", c.accel(),
		"-cpu", c.CPUModel,
		"-smp", fmt.Sprintf("cpus=%d,sockets=1,cores=%d,threads=1,maxcpus=%d", c.VCPUs, c.VCPUs, c.VCPUs),
		"-m", fmt.Sprintf("%dM,slots=1,maxmem=%dM", c.BootMB, sandbox.MaxMemoryMB),
		"-object", c.bootMemory(),
		// NORESERVE: it is address space for the largest size, not memory.
		"-object", fmt.Sprintf("memory-backend-ram,id=%s,size=%dM,reserve=off", plugMemoryID, plugMemoryMB(c.BootMB)),
	}
	if c.Kernel != "" {
		a = append(a, "-kernel", c.Kernel, "-initrd", c.Initrd, "-append", c.Append)
	}
	a = append(a, c.sockets()...)
	a = append(a, c.disks()...)
	a = append(a, devices(c.topNode())...)
	if c.Incoming {
		a = append(a, "-incoming", "defer")
	}
	return a
}

func (c commandLine) accel() string {
	if c.Accel == "tcg" {
		return fmt.Sprintf("tcg,thread=multi,tb-size=%d", translationCacheMB)
	}
	return c.Accel
}

func (c commandLine) bootMemory() string {
	share := "off"
	if c.MemoryShared {
		share = "on"
	}
	s := fmt.Sprintf("memory-backend-file,id=%s,size=%dM,mem-path=/proc/self/fd/%d,share=%s", bootMemoryID, c.BootMB, c.MemoryFD, share)
	if c.MemoryReadOnly && !c.MemoryShared {
		s += ",readonly=on,rom=off"
	}
	return s
}

// sockets are listened on by the server and accepted by QEMU, so that they
// outlive the server and QEMU needs no directory to write to.
func (c commandLine) sockets() []string {
	return []string{
		"-add-fd", fmt.Sprintf("set=%d,fd=%d", consoleSet, c.ConsoleFD),
		// Without append QEMU would truncate it, which a FIFO refuses.
		"-chardev", fmt.Sprintf("file,id=console0,path=/dev/fdset/%d,append=on", consoleSet),
		"-chardev", fmt.Sprintf("socket,id=qmp0,fd=%d,server=on,wait=off", c.QMPFD),
		"-mon", "chardev=qmp0,mode=control",
		"-chardev", fmt.Sprintf("socket,id=agent0,fd=%d,server=on,wait=off", c.AgentFD),
		"-netdev", fmt.Sprintf("stream,id=net0,server=on,addr.type=fd,addr.str=%d", c.NetworkFD),
	}
}

func (c commandLine) topNode() string {
	if len(c.Disks) == 0 {
		return noDiskNode
	}
	return c.Disks[len(c.Disks)-1].Node
}

func (c commandLine) disks() []string {
	if len(c.Disks) == 0 {
		return []string{"-blockdev", mustJSON(map[string]any{"driver": "null-co", "node-name": noDiskNode, "size": int64(c.NoDiskMB) << 20})}
	}
	var a []string
	backing := ""
	for i, d := range c.Disks {
		set := firstDisk + i
		for _, fd := range d.FDs {
			a = append(a, "-add-fd", fmt.Sprintf("set=%d,fd=%d,opaque=%s", set, fd, d.Node))
		}
		top := i == len(c.Disks)-1
		a = append(a, "-blockdev", mustJSON(blockNode(d.Node, d.Format, set, backing, top)))
		backing = d.Node
	}
	return a
}

// devices are the machine's devices. Address and id of each are part of the shape.
func devices(topNode string) []string {
	return []string{
		"-device", fmt.Sprintf("virtio-blk-pci,id=%s,bus=pcie.0,addr=0x2,drive=%s,bootindex=1,discard=on,write-cache=on,werror=enospc,rerror=report,serial=root", diskDeviceID, topNode),
		"-device", "virtio-net-pci,id=nic0,bus=pcie.0,addr=0x3,netdev=net0,mac=" + layout.GuestMAC + ",romfile=",
		"-device", "virtio-serial-pci,id=serial0,bus=pcie.0,addr=0x4,max_ports=2",
		"-device", "virtserialport,id=agentport0,bus=serial0.0,nr=1,chardev=agent0,name=" + agentPort,
		"-object", "rng-builtin,id=rng0",
		"-device", "virtio-rng-pci,id=virtiorng0,bus=pcie.0,addr=0x5,rng=rng0",
		"-device", fmt.Sprintf("virtio-mem-pci,id=%s,bus=pcie.0,addr=0x6,memdev=%s,block-size=%dM,requested-size=0", plugDeviceID, plugMemoryID, plugBlockMB),
		"-device", "isa-serial,id=console,chardev=console0",
	}
}

// kernelAppend is the guest's kernel command line.
//
//   - pci=lastbus=0: there is one bus; scanning for others takes 40 ms.
//   - tsc=reliable: the counter is the host's, the same on all vCPUs. The
//     watchdog would see a descheduled vCPU as a broken clock and fall back to
//     a device, which costs an exit for every reading.
//   - memory that is plugged in goes online by itself, to where it is needed.
//   - huge pages only for programs that ask for them: a kernel that makes them of what
//     is there by itself copies 25 MB of an idle guest in its first minute, which it then
//     shares with nobody, and which every fork and hibernation has to copy.
func kernelAppend(quiet bool) string {
	a := []string{
		"console=ttyS0", "panic=-1", "mitigations=off", "pci=lastbus=0", "tsc=reliable", "no_timer_check",
		"8250.nr_uarts=1", "memhp_default_state=online", "memory_hotplug.online_policy=auto-movable", "transparent_hugepage=madvise", "rdinit=/init",
	}
	if quiet {
		a = append(a, "quiet")
	}
	return strings.Join(a, " ")
}

// fdPath names descriptor n of the process that opens it.
func fdPath(n int) string { return "/proc/self/fd/" + strconv.Itoa(n) }

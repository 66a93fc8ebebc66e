package qemu

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// chain is the disk of a machine with n layers, as openChain numbers it.
func chain(n int) []diskArg {
	disks := []diskArg{{Node: imageNode, Format: "raw", FDs: []int{10}}}
	for i := range n {
		d := diskArg{Node: layerNode(i), Format: "qcow2", FDs: []int{11 + i}}
		if i == n-1 {
			d.FDs = append(d.FDs, 12+i)
		}
		disks = append(disks, d)
	}
	return disks
}

// The machine shape is frozen: a change of these files makes every snapshot
// that exists useless and needs a new shape version.
func TestArgsGolden(t *testing.T) {
	base := commandLine{
		Name: "0123456789abcdef0123456789abcdef", Accel: "tcg", CPUModel: cpuTCG, VCPUs: 2, BootMB: firstBootMB,
		MemoryFD: 3, ConsoleFD: 4, QMPFD: 5, AgentFD: 6, NetworkFD: 7,
	}
	golden := base
	golden.MemoryShared, golden.Disks = true, chain(1)
	golden.Kernel, golden.Initrd, golden.Append = fdPath(8), fdPath(9), kernelAppend(true)
	restored := base
	restored.Incoming, restored.Disks = true, chain(2)
	kvm := restored
	kvm.Accel, kvm.CPUModel, kvm.VCPUs, kvm.MemoryReadOnly = "kvm", cpuKVMIntel, 8, true
	for name, c := range map[string]commandLine{"golden": golden, "restored": restored, "kvm-qemu8": kvm} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(c.args(), "\n") + "\n"
			path := filepath.Join("testdata", "args-"+name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("arguments differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing that lets a guest change shared memory or find devices that the
// shape does not have may come in by accident.
func TestArgsForbidden(t *testing.T) {
	c := commandLine{Disks: chain(1), Kernel: "k", Initrd: "i"}
	for _, a := range c.args() {
		for _, bad := range []string{"balloon", "free-page", "vhost", "virtfs", "/dev/shm"} {
			if strings.Contains(a, bad) {
				t.Errorf("argument %q has %q", a, bad)
			}
		}
	}
}

func TestArgsArePure(t *testing.T) {
	c := commandLine{Disks: chain(3)}
	if diff := cmp.Diff(c.args(), c.args()); diff != "" {
		t.Error(diff)
	}
}

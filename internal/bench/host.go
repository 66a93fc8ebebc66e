package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// Host describes where a run took place. All but driver, isolation and version
// are of the host that measured.
type Host struct {
	CPU       string    `json:"cpu"`
	Cores     int       `json:"cores"`
	MemoryMB  int       `json:"memory_mb"`
	Kernel    string    `json:"kernel"`
	QEMU      string    `json:"qemu,omitempty"` // unknown when the server is elsewhere, or runs no QEMU
	Driver    string    `json:"driver"`
	Isolation string    `json:"isolation"`
	Load1     float64   `json:"load1"`     // load average over a minute, at the start
	Load1End  float64   `json:"load1_end"` // and at the end, with the load of the run itself
	Version   string    `json:"version"`   // of the server
	Remote    bool      `json:"remote,omitempty"`
	Time      time.Time `json:"time"`
}

func describeHost(ctx context.Context, remote bool, info *v1.Info) Host {
	h := Host{
		CPU: cpuModel(), Cores: runtime.NumCPU(), MemoryMB: memoryMB("MemTotal"), Kernel: kernel(),
		Driver: info.Driver, Isolation: info.Isolation, Version: info.Version,
		Load1: load1(), Remote: remote, Time: time.Now().UTC().Truncate(time.Second),
	}
	if !remote && info.Driver == qemuDriver {
		h.QEMU = qemuVersion(ctx)
	}
	return h
}

// line returns what follows a name and a colon in a file of /proc, or nothing.
func line(path, name string) string {
	b, _ := os.ReadFile(path) // what cannot be read is left out of the report
	for l := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func cpuModel() string { return line("/proc/cpuinfo", "model name") }

// memoryMB reads a line of /proc/meminfo, in MiB; 0 when it is not known.
func memoryMB(name string) int {
	var kb int
	if _, err := fmt.Sscanf(line("/proc/meminfo", name), "%d kB", &kb); err != nil {
		return 0
	}
	return kb >> 10
}

func load1() float64 {
	b, _ := os.ReadFile("/proc/loadavg") // as above
	var f float64
	if _, err := fmt.Sscanf(string(b), "%f", &f); err != nil {
		return 0
	}
	return f
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// qemuDriver is the name of the driver whose machines the floors are of.
const qemuDriver = "qemu"

var versionRE = regexp.MustCompile(`version (\d+(\.\d+)+)`)

// qemuVersion is that of the QEMU in PATH, which is the one the server uses
// unless it was told otherwise.
func qemuVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	if err != nil {
		return ""
	}
	if m := versionRE.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return ""
}

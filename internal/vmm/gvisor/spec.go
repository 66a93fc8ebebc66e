package gvisor

import (
	"encoding/json"
	"fmt"
)

// spec is what of the OCI runtime specification a sandbox needs. A snapshot is only
// restored under the spec that it was made with, but for the sources of its mounts,
// so a change here ends the life of the snapshots in memory: their disks remain.
type spec struct {
	Version     string            `json:"ociVersion"`
	Process     specProcess       `json:"process"`
	Root        specRoot          `json:"root"`
	Hostname    string            `json:"hostname"`
	Mounts      []specMount       `json:"mounts"`
	Annotations map[string]string `json:"annotations"`
	Linux       specLinux         `json:"linux"`
}

type specProcess struct {
	User         struct{ UID, GID uint32 } `json:"user"`
	Args         []string                  `json:"args"`
	Env          []string                  `json:"env"`
	Cwd          string                    `json:"cwd"`
	Capabilities map[string][]string       `json:"capabilities"`
}

type specRoot struct {
	Path string `json:"path"`
}

type specMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

type specNamespace struct {
	Type string `json:"type"`
}

type specLinux struct {
	Namespaces []specNamespace `json:"namespaces"`
}

// Names of the guest. The agent changes the hostname.
const (
	guestHostname = "ramet"
	// envDriver tells the agent that it runs in gVisor: its stream is its standard input and output.
	envDriver = "RAMET_DRIVER=gvisor"
)

// capabilities are those of root in the sandbox: all that gVisor gives a meaning to. They are
// capabilities in the sandbox's own kernel; on the host the sandbox has none.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
	"CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_KILL", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_CHROOT",
	"CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG",
}

// newSpec describes a sandbox. rootDir is an empty directory: the OCI specification wants one. The
// image has no path, but is a descriptor of the command that makes the sandbox: so
// snapshots stay of use when the data directory moves.
func newSpec(rootDir string) ([]byte, error) {
	caps := map[string][]string{}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		caps[set] = capabilities
	}
	s := spec{
		Version: "1.0.2",
		Process: specProcess{
			Args: []string{agentPath}, Cwd: "/", Capabilities: caps,
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", envDriver},
		},
		Root:     specRoot{Path: rootDir},
		Hostname: guestHostname,
		Mounts: []specMount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "dev", Source: "dev"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs"},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source": fmt.Sprintf("/proc/self/fd/%d", firstFile),
			"dev.gvisor.spec.rootfs.type":   "erofs",
			// That the writable layer is a file; in which directory is a flag's to say.
			"dev.gvisor.spec.rootfs.overlay": "dir=/",
		},
		Linux: specLinux{Namespaces: []specNamespace{{"pid"}, {"ipc"}, {"uts"}, {"mount"}, {"network"}}},
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the sandbox's description: %w", err)
	}
	return b, nil
}

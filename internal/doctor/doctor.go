// Package doctor looks at a host and says whether Ramet can run there: what is
// fine, what is missing, and what to do about it. It changes nothing on the
// host. It owns the checks and their words; how they are printed belongs to the
// command line. Start reading at Checks.
package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/config"
)

// Status is the outcome of a check.
type Status string

// The outcomes. A host with a Fail cannot run sandboxes.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Result is one line of a report.
type Result struct {
	// Name is a stable word in snake case.
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Summary is what was found, in one sentence.
	Summary string `json:"summary"`
	// Fix says what to do, when there is something to do.
	Fix string `json:"fix,omitempty"`
}

// Report is the outcome of all checks.
type Report struct {
	// OK is false when any check failed; warnings do not count.
	OK     bool     `json:"ok"`
	Checks []Result `json:"checks"`
}

// Host is the machine that is looked at. Tests make one of a directory.
type Host struct {
	// Root is prefixed to every path of the host's system files; "" is the real one.
	Root string
	// Run runs a program and returns its output, standard error included.
	Run func(ctx context.Context, name string, args ...string) (string, error)
	// LookPath finds a program.
	LookPath func(name string) (string, error)
	Getenv   func(string) string
	// Program is the path of this program, beside which others of its kind are; may be empty.
	Program string
	EUID    int
	Arch    string
	HTTP    *http.Client
}

// maxOutput bounds what is kept of a program's output, in bytes.
const maxOutput = 64 << 10

// RunProgram is a Host.Run for the real host.
func RunProgram(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var out limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.kept.String(), err
}

// limitedBuffer keeps the first maxOutput bytes and swallows the rest.
// The buffer is no embedded field: its ReadFrom would go around the bound.
type limitedBuffer struct{ kept bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxOutput - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// check is one look at the host.
type check struct {
	name string
	run  func(ctx context.Context, h Host, s config.Server) finding
}

// finding is a Result without its name.
type finding struct {
	status  Status
	summary string
	fix     string
}

func ok(format string, args ...any) finding {
	return finding{OK, fmt.Sprintf(format, args...), ""}
}

// checkTimeout bounds each check.
const checkTimeout = 15 * time.Second

// checks lists all checks in the order of the report: what everything needs first.
func checks() []check {
	return []check{
		{"platform", checkPlatform},
		{"privileges", checkPrivileges},
		{"uids", checkUIDs},
		{"qemu", checkQEMU},
		{"qemu_img", checkQEMUImg},
		{"mmdebstrap", checkMmdebstrap},
		{"e2fsprogs", checkE2fsprogs},
		{"kvm", checkKVM},
		{"gvisor", checkGVisor},
		{"isolation", checkIsolation},
		{"cgroups", checkCgroups},
		{"memory", checkMemory},
		{"disk", checkDisk},
		{"reflink", checkReflink},
		{"proxy", checkProxy},
		{"certificates", checkCertificates},
		{"packages", checkMirror},
		{"server", checkServer},
	}
}

// Run makes all checks, one after the other.
func Run(ctx context.Context, h Host, s config.Server) Report {
	r := Report{OK: true}
	for _, c := range checks() {
		if ctx.Err() != nil {
			r.OK = false
			break
		}
		one, cancel := context.WithTimeout(ctx, checkTimeout)
		f := c.run(one, h, s)
		cancel()
		if f.status == Fail {
			r.OK = false
		}
		r.Checks = append(r.Checks, Result{Name: c.name, Status: f.status, Summary: f.summary, Fix: f.fix})
	}
	return r
}

// read returns the content of a system file, at most 1 MiB of it.
func (h Host) read(path string) (string, error) {
	f, err := os.Open(filepath.Join(h.Root, path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(b), err
}

func (h Host) exists(path string) bool {
	_, err := os.Stat(filepath.Join(h.Root, path))
	return err == nil
}

// existingParent returns dir or its nearest parent that exists.
func existingParent(dir string) string {
	for {
		_, err := os.Stat(dir)
		if err == nil || !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

// level is one isolation that a host may give.
type level struct {
	isolation sandbox.Isolation
	missing   string // why the host cannot give it; "" when it can
	untried   bool   // it looks as if it could; a start of a server finds out
	fix       string
}

// kvmProbe is what the QEMU driver remembers of its try to boot under KVM.
type kvmProbe struct {
	Usable bool   `json:"usable"`
	Reason string `json:"reason"`
}

// kvmLevel says whether machines can run under KVM, as far as that is known without a try.
func kvmLevel(h Host) level {
	l := level{isolation: sandbox.IsolationKVM}
	f, err := os.OpenFile(filepath.Join(h.Root, "/dev/kvm"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.missing = "there is no /dev/kvm"
		l.fix = "where the hardware has it, switch virtualization on in the firmware, or nested virtualization in the cloud"
		return l
	case err != nil:
		l.missing, l.fix = "/dev/kvm cannot be opened", "check its permissions"
		return l
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err == nil && st.Mode&0o006 != 0o006 && (st.Gid == 0 || st.Mode&0o060 != 0o060) {
		l.missing = "/dev/kvm is root's alone, and machines run without privileges"
		l.fix = "give it a group: chgrp kvm /dev/kvm && chmod 660 /dev/kvm"
		return l
	}
	again := "to try again, remove " + config.KVMProbe + " and start the server anew"
	b, err := h.read(config.KVMProbe)
	if err != nil {
		l.untried = true
		return l
	}
	var p kvmProbe
	if err := json.Unmarshal([]byte(b), &p); err != nil {
		l.missing, l.fix = "what is remembered of KVM cannot be read", again
		return l
	}
	if p.Usable {
		return l
	}
	l.missing, l.fix = "a kernel did not boot under KVM", again
	if p.Reason != "" {
		l.missing += " (" + p.Reason + ")"
	}
	return l
}

var runscVersion = regexp.MustCompile(`(?m)^runsc version (ramet-\S+)$`)

// gvisorLevel says whether sandboxes can run in gVisor, and in which version.
func gvisorLevel(ctx context.Context, h Host) (l level, version string) {
	l = level{isolation: sandbox.IsolationGVisor, fix: "build it with 'make build', or install the package again"}
	path, err := h.runsc()
	if err != nil {
		l.missing = "ramet-runsc is not beside this program"
		return l, ""
	}
	out, err := h.Run(ctx, path, "--version")
	if err != nil {
		l.missing = fmt.Sprintf("%s does not run: %v", path, err)
		return l, ""
	}
	m := runscVersion.FindStringSubmatch(out)
	if m == nil {
		l.missing = path + " does not belong to this server: it is another runsc"
		return l, ""
	}
	if !h.exists("/dev/net/tun") {
		l.missing, l.fix = "there is no /dev/net/tun", "load the kernel's module (modprobe tun), or give the container the device"
		return l, ""
	}
	return level{isolation: sandbox.IsolationGVisor}, m[1]
}

// runsc finds the runsc where a server looks for it.
func (h Host) runsc() (string, error) {
	if path := h.Getenv(config.RunscVariable); path != "" {
		return h.LookPath(path)
	}
	if h.Program != "" {
		for _, place := range config.RunscPlaces(h.Program) {
			if path, err := h.LookPath(place); err == nil {
				return path, nil
			}
		}
	}
	return h.LookPath(config.RunscName)
}

// emulatedLevel says whether QEMU can emulate machines.
func emulatedLevel(ctx context.Context, h Host) level {
	f := program(ctx, h, "qemu-system-x86_64", "--version", pkgQEMU, 7, 2)
	l := level{isolation: sandbox.IsolationEmulated}
	if f.status == Fail {
		l.missing, l.fix = f.summary, f.fix
	}
	return l
}

func checkKVM(ctx context.Context, h Host, s config.Server) finding {
	if s.Driver == "gvisor" {
		return ok("not needed: the driver gvisor does not use KVM")
	}
	if s.Accel == "tcg" {
		return finding{Warn, "emulation was asked for (accel: tcg); sandboxes are slower than with KVM", ""}
	}
	l := kvmLevel(h)
	switch {
	case l.untried:
		return ok("/dev/kvm is there; the first start of a server tries whether a kernel really boots under it")
	case l.missing == "":
		return ok("a kernel booted under KVM")
	}
	instead := "sandboxes run by emulation, which works the same but is much slower"
	if s.Driver != "qemu" {
		instead = "sandboxes run in gVisor, at the CPU's speed and less isolated (docs/isolation.md)"
	}
	f := finding{Warn, l.missing + "; " + instead, l.fix}
	if s.Accel == "kvm" && s.Driver == "qemu" {
		f.status = Fail
		f.summary = l.missing + ", but it was asked for (accel: kvm)"
		f.fix = "set accel to auto or tcg, or make KVM usable: " + l.fix
	}
	return f
}

func checkGVisor(ctx context.Context, h Host, s config.Server) finding {
	l, version := gvisorLevel(ctx, h)
	if l.missing == "" {
		return ok("%s, and /dev/net/tun for its network", version)
	}
	f := finding{Warn, l.missing + "; sandboxes cannot run in gVisor", l.fix}
	if s.Driver == "gvisor" {
		f.status = Fail
		f.fix = "set driver to auto or qemu, or: " + l.fix
	}
	return f
}

// checkIsolation says what can stand between sandboxes and this host, and what will.
func checkIsolation(ctx context.Context, h Host, s config.Server) finding {
	kvm, emulated := kvmLevel(h), emulatedLevel(ctx, h)
	if emulated.missing != "" { // it is QEMU that uses KVM
		kvm.missing, kvm.untried, kvm.fix = emulated.missing, false, emulated.fix
	}
	gvisor, _ := gvisorLevel(ctx, h)
	var can, cannot []string
	for _, l := range []level{kvm, gvisor, emulated} {
		name := string(l.isolation)
		switch {
		case l.missing != "":
			cannot = append(cannot, name)
		case l.untried:
			can = append(can, name+" (not tried yet)")
		default:
			can = append(can, name)
		}
	}
	if can == nil {
		return finding{Fail, "this host can give no isolation: " + emulated.missing + ", and " + gvisor.missing, emulated.fix}
	}
	what := "this host can give " + strings.Join(can, ", ")
	if cannot != nil {
		what += ", and not " + strings.Join(cannot, ", ")
	}
	auto := chosen(s.Accel, kvm, gvisor, emulated)
	what += "; the driver auto chooses " + words(auto)
	will := auto
	switch s.Driver {
	case "gvisor":
		will = []level{gvisor}
	case "qemu":
		will = withQEMU(s.Accel, kvm, emulated)
	}
	if s.Driver == "gvisor" || s.Driver == "qemu" {
		what += ", and " + s.Driver + ", which is set, " + words(will)
	}
	for _, l := range will {
		if l.missing != "" {
			return finding{Fail, what, "make " + string(l.isolation) + " possible, or set another driver: " + l.fix}
		}
	}
	if least := will[len(will)-1].isolation; !least.AtLeast(s.MinIsolation) {
		f := finding{Fail, what + ", but min_isolation is " + string(s.MinIsolation), "set another driver, or a lower min_isolation"}
		if will[0].isolation.AtLeast(s.MinIsolation) {
			f.status = Warn // a start finds out
		}
		return f
	}
	return finding{OK, what, ""}
}

// chosen is what the driver auto comes to: one level, or two while KVM was not tried.
func chosen(accel string, kvm, gvisor, emulated level) []level {
	switch {
	case accel == "tcg":
		return []level{emulated}
	case kvm.untried:
		return []level{kvm, gvisor}
	case kvm.missing == "":
		return []level{kvm}
	}
	return []level{gvisor}
}

// withQEMU is the same of the driver qemu.
func withQEMU(accel string, kvm, emulated level) []level {
	switch {
	case accel == "kvm":
		return []level{kvm}
	case accel == "tcg":
		return []level{emulated}
	case kvm.untried:
		return []level{kvm, emulated}
	case kvm.missing == "":
		return []level{kvm}
	}
	return []level{emulated}
}

func words(will []level) string {
	out := string(will[0].isolation)
	if len(will) > 1 {
		out += " if a kernel boots under it, else " + string(will[1].isolation)
	}
	return out
}

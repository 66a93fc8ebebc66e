package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/sandbox"
)

func TestCheckIsolation(t *testing.T) {
	const booted, didNot = `{"usable":true}`, `{"usable":false,"reason":"nothing came within 8 s"}`
	for _, c := range []struct {
		name          string
		probe         string // "" when none was made
		missing       string // a program
		driver, accel string
		least         sandbox.Isolation
		want          Status
		says          string
	}{
		{"KVM works", booted, "", "auto", "auto", "", OK, "can give kvm, gvisor, emulated; the driver auto chooses kvm"},
		{"KVM was not tried", "", "", "auto", "auto", "", OK, "can give kvm (not tried yet), gvisor, emulated; the driver auto chooses kvm if a kernel boots under it, else gvisor"},
		{"KVM does not work", didNot, "", "auto", "auto", "", OK, "can give gvisor, emulated, and not kvm; the driver auto chooses gvisor"},
		{"emulation asked for", booted, "", "auto", "tcg", "", OK, "the driver auto chooses emulated"},
		{"QEMU is set", didNot, "", "qemu", "auto", "", OK, "auto chooses gvisor, and qemu, which is set, emulated"},
		{"QEMU is set, KVM was not tried", "", "", "qemu", "auto", "", OK, "qemu, which is set, kvm if a kernel boots under it, else emulated"},
		{"gVisor is set", booted, "", "gvisor", "auto", "", OK, "auto chooses kvm, and gvisor, which is set, gvisor"},
		{"gVisor without QEMU", didNot, "qemu-system-x86_64", "gvisor", "auto", "", OK, "can give gvisor, and not kvm, emulated"},
		{"KVM asked for that does not work", didNot, "", "qemu", "kvm", "", Fail, "make kvm possible"},
		{"neither KVM nor runsc", didNot, "ramet-runsc", "auto", "auto", "", Fail, "make gvisor possible"},
		{"QEMU without runsc", didNot, "ramet-runsc", "qemu", "auto", "", OK, "can give emulated, and not kvm, gvisor"},
		{"enough", didNot, "", "auto", "auto", "gvisor", OK, "chooses gvisor"},
		{"too little", didNot, "", "auto", "auto", "kvm", Fail, "but min_isolation is kvm"},
		{"perhaps too little", "", "", "auto", "auto", "kvm", Warn, "but min_isolation is kvm"},
		{"too little of the driver that is set", booted, "", "gvisor", "auto", "kvm", Fail, "but min_isolation is kvm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, s := healthy(t)
			if c.probe != "" {
				if err := os.WriteFile(filepath.Join(h.Root, config.KVMProbe), []byte(c.probe), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			look := h.LookPath
			h.LookPath = func(name string) (string, error) {
				if filepath.Base(name) == c.missing {
					return "", os.ErrNotExist
				}
				return look(name)
			}
			s.Driver, s.Accel, s.MinIsolation = c.driver, c.accel, c.least
			if f := checkIsolation(t.Context(), h, s); f.status != c.want || !strings.Contains(f.summary+" > "+f.fix, c.says) {
				t.Errorf("%+v, want %s with %q", f, c.want, c.says)
			}
		})
	}
}

// The runsc is the one that a server would use.
func TestRunscIsFoundBesideTheProgram(t *testing.T) {
	h, _ := healthy(t)
	h.Program = "/opt/ramet/ramet"
	there := map[string]bool{"/opt/ramet/ramet-runsc": true, "ramet-runsc": true, "/srv/runsc": true}
	h.LookPath = func(name string) (string, error) {
		if !there[name] {
			return "", os.ErrNotExist
		}
		return name, nil
	}
	if path, err := h.runsc(); path != "/opt/ramet/ramet-runsc" || err != nil {
		t.Errorf("%s, %v", path, err)
	}
	delete(there, "/opt/ramet/ramet-runsc")
	if path, err := h.runsc(); path != "ramet-runsc" || err != nil {
		t.Errorf("%s, %v", path, err)
	}
	h.Getenv = func(name string) string { return map[string]string{config.RunscVariable: "/srv/runsc"}[name] }
	if path, err := h.runsc(); path != "/srv/runsc" || err != nil {
		t.Errorf("%s, %v", path, err)
	}
}

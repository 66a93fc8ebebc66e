package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/vmm"
)

const (
	kvmDevice = "/dev/kvm"
	// probeTimeout bounds the boot of a kernel under KVM up to its first
	// program, which takes well under a second where KVM works.
	probeTimeout = 8 * time.Second
	// probeLine is what the kernel says when it starts its first program.
	probeLine = "Run /init as init process"
)

// KVMProbe is the remembered answer to whether a kernel boots under KVM here.
type KVMProbe struct {
	Usable bool   `json:"usable"`
	Reason string `json:"reason"` // one sentence, also when usable
	// The answer holds for these.
	HostKernel  string        `json:"host_kernel"`
	QEMUVersion string        `json:"qemu_version"`
	GuestKernel string        `json:"guest_kernel"` // SHA-256 of the file
	CPUModel    string        `json:"cpu_model"`
	At          time.Time     `json:"at"`
	Took        time.Duration `json:"took_ns"`
}

// LastProbe returns what this driver last found out, for people. ok is false
// when it has not probed.
func (d *Driver) LastProbe() (p KVMProbe, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kvm, !d.kvm.At.IsZero()
}

// ProbeKVM finds out whether the image's kernel boots under KVM on this host,
// by booting it: there are hosts whose /dev/kvm opens and makes vCPUs, and yet
// a stock kernel never gets out of its decompressor. The answer is kept in
// StateDir for this host kernel, QEMU and guest kernel; fresh asks again.
// It decides what a driver with Accel "auto" uses from now on.
func (d *Driver) ProbeKVM(ctx context.Context, img vmm.Image, fresh bool) (KVMProbe, error) {
	d.probe.Lock()
	defer d.probe.Unlock()
	p, err := d.probeKey(img)
	if err != nil {
		return p, fmt.Errorf("probe KVM: %w", err)
	}
	if old, ok := d.recall(p); ok && !fresh {
		d.decide(old)
		return old, nil
	}
	begin := time.Now()
	booted := true
	if p.Reason = kvmMissing(); p.Reason != "" {
		booted = false
	} else if p.Usable, p.Reason, err = d.tryKVM(ctx, img); err != nil {
		return p, fmt.Errorf("probe KVM: %w", err)
	}
	p.At, p.Took = begin.UTC(), time.Since(begin)
	d.decide(p)
	if !booted {
		return p, nil // quick to find out again, and quick to change
	}
	d.log.Info("probed KVM by booting a kernel", "usable", p.Usable, "reason", p.Reason, "took", p.Took)
	return p, d.remember(p)
}

func (d *Driver) decide(p KVMProbe) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kvm = p
	if d.cfg.Accel != "" && d.cfg.Accel != "auto" {
		return
	}
	d.accel = "tcg"
	if p.Usable {
		d.accel = "kvm"
	}
}

// decideAccel returns the accelerator for new machines.
func (d *Driver) decideAccel(ctx context.Context, img vmm.Image) (string, error) {
	d.mu.Lock()
	accel := d.accel
	d.mu.Unlock()
	if accel != "" {
		return accel, nil
	}
	if _, err := d.ProbeKVM(ctx, img, false); err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accel, nil
}

// probeKey is a probe without its answer.
func (d *Driver) probeKey(img vmm.Image) (KVMProbe, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return KVMProbe{}, err
	}
	f, err := os.Open(img.Kernel)
	if err != nil {
		return KVMProbe{}, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return KVMProbe{}, err
	}
	return KVMProbe{
		HostKernel: unix.ByteSliceToString(u.Release[:]), QEMUVersion: d.version.now().String(),
		GuestKernel: hex.EncodeToString(h.Sum(nil)), CPUModel: d.cpuModel("kvm"),
	}, nil
}

func (d *Driver) probePath() string { return filepath.Join(d.cfg.StateDir, "kvm-probe.json") }

// recall returns the kept answer for the same host, QEMU and kernel.
func (d *Driver) recall(key KVMProbe) (KVMProbe, bool) {
	var p KVMProbe
	b, err := os.ReadFile(d.probePath())
	if err != nil || json.Unmarshal(b, &p) != nil {
		return p, false
	}
	same := p.HostKernel == key.HostKernel && p.QEMUVersion == key.QEMUVersion && p.GuestKernel == key.GuestKernel && p.CPUModel == key.CPUModel
	return p, same && !p.At.IsZero()
}

func (d *Driver) remember(p KVMProbe) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := d.cfg.Disk.WriteFile("kvm_probe", d.probePath(), b, 0o644); err != nil {
		return fmt.Errorf("remember the KVM probe: %w", err)
	}
	return nil
}

// HasKVM says whether machines could open the device. That a kernel boots under it is another question, see
// Driver.ProbeKVM.
func HasKVM() bool { return kvmMissing() == "" }

// kvmMissing says why machines cannot even open the device, or nothing.
func kvmMissing() string {
	var st unix.Stat_t
	if err := unix.Stat(kvmDevice, &st); err != nil {
		return "there is no " + kvmDevice + " on this host"
	}
	if st.Mode&0o006 != 0o006 && kvmGroup() == 0 {
		return fmt.Sprintf("%s exists, but machines run without privileges and cannot open it; give it a group (chgrp kvm %[1]s && chmod 660 %[1]s), then ask again", kvmDevice)
	}
	return ""
}

// kvmGroup is a group that may open the device, or 0.
func kvmGroup() uint32 {
	var st unix.Stat_t
	if unix.Stat(kvmDevice, &st) == nil && st.Mode&0o060 == 0o060 {
		return st.Gid
	}
	return 0
}

// tryKVM boots the kernel. An error is one of ours; what the host cannot do is
// an answer.
func (d *Driver) tryKVM(ctx context.Context, img vmm.Image) (usable bool, reason string, err error) {
	dir, err := os.MkdirTemp(d.cfg.StateDir, "kvm-probe-*")
	if err != nil {
		return false, "", err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		err = errors.Join(err, d.Remove(ctx, dir))
	}()
	c := vmm.Config{
		Instance: sandbox.NewInstanceID(), Dir: dir, Source: vmm.Source{Image: img},
		Shape: sandbox.Shape{VCPUs: 2, MemoryMB: sandbox.MinMemoryMB},
	}
	m, err := d.start(ctx, c, "kvm", true, coldSteps())
	var exit *ExitError
	if errors.As(err, &exit) {
		return false, "QEMU did not start with KVM: " + exit.Stderr, nil
	}
	if err != nil {
		return false, "", err
	}
	return m.probeBoot(ctx)
}

// probeBoot runs the machine until its kernel starts its first program.
func (m *Machine) probeBoot(ctx context.Context) (usable bool, reason string, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		err = errors.Join(err, m.Kill(ctx))
	}()
	if err := m.Resume(ctx); err != nil {
		return false, "", err
	}
	wait, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	stop := context.AfterFunc(m.life, cancel)
	defer stop()
	switch {
	case m.console.WaitFor(wait, probeLine):
		return true, "a kernel boots under KVM", nil
	case ctx.Err() != nil:
		return false, "", context.Cause(ctx)
	case m.life.Err() != nil:
		<-m.done
		return false, "QEMU with KVM: " + m.err.Error(), nil
	}
	said := "said nothing"
	if m.console.String() != "" {
		said = "did not reach its first program"
	}
	return false, fmt.Sprintf("%s opens, but a stock kernel %s within %s", kvmDevice, said, probeTimeout), nil
}

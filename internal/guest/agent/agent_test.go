package agent

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	guestexec "ramet.dev/ramet/internal/guest/exec"
)

func TestHostsWith(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "127.0.0.1\tlocalhost\n127.0.1.1\tnew\n"},
		{"replaced", "127.0.0.1 localhost\n127.0.1.1 old old.lan\n::1 ip6-localhost\n", "127.0.0.1 localhost\n127.0.1.1\tnew\n::1 ip6-localhost\n"},
		{"added, no newline", "127.0.0.1 localhost\n10.0.0.1 mine", "127.0.0.1 localhost\n10.0.0.1 mine\n127.0.1.1\tnew\n"},
		{"twice", "127.0.0.1 localhost\n127.0.1.1 a\n127.0.1.1 b\n", "127.0.0.1 localhost\n127.0.1.1\tnew\n"},
		{"comment", "# 127.0.1.1 x\n127.0.0.1 localhost\n", "# 127.0.1.1 x\n127.0.0.1 localhost\n127.0.1.1\tnew\n"},
	} {
		got := string(hostsWith([]byte(c.in), "new"))
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if again := string(hostsWith([]byte(got), "new")); again != got {
			t.Errorf("%s: not stable: %q", c.name, again)
		}
	}
}

func TestRefreshRefusesBadIdentity(t *testing.T) {
	m := NewMachine(noExec{}, virtualMachine{freezer{t.TempDir()}}, slog.New(slog.DiscardHandler))
	for name, r := range map[string]*agentv1.RefreshRequest{
		"short entropy":      {Entropy: make([]byte, 31)},
		"long entropy":       {Entropy: make([]byte, 257)},
		"hostname newline":   {Hostname: "a\nb"},
		"hostname too long":  {Hostname: strings.Repeat("a", 64)},
		"hostname dash":      {Hostname: "-a"},
		"machine id short":   {MachineId: "0123"},
		"machine id capital": {MachineId: strings.Repeat("A", 32)},
	} {
		if _, err := m.Refresh(t.Context(), r); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFailedRefreshDoesNotThaw checks the promise that a machine without its
// identity does not run: a step before the thaw fails here.
func TestFailedRefreshDoesNotThaw(t *testing.T) {
	dir := t.TempDir() // a file tree in place of a cgroup
	frozen := filepath.Join(dir, "cgroup.freeze")
	if err := errors.Join(os.WriteFile(frozen, []byte("1"), 0o644), os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte("frozen 0\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	m := NewMachine(noExec{err: errors.New("broken")}, virtualMachine{freezer{dir}}, slog.New(slog.DiscardHandler))
	if _, err := m.Refresh(t.Context(), &agentv1.RefreshRequest{Reseed: true}); err == nil {
		t.Fatal("no error")
	}
	if got, _ := os.ReadFile(frozen); string(got) != "1" {
		t.Fatalf("cgroup.freeze is %q", got)
	}
	m = NewMachine(noExec{}, virtualMachine{freezer{dir}}, slog.New(slog.DiscardHandler))
	if _, err := m.Refresh(t.Context(), &agentv1.RefreshRequest{Reseed: true}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(frozen); string(got) != "0" {
		t.Fatalf("cgroup.freeze is %q", got)
	}
}

type noExec struct {
	agentv1connect.UnimplementedExecHandler
	err error
}

func (e noExec) Renew(guestexec.Renewal) error { return e.err }

// makeCgroup makes a cgroup of version 2, where this host has one.
func makeCgroup(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(root, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		dir := filepath.Join(root, fmt.Sprintf("ramet-test-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("cannot make a cgroup: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("remove the cgroup: %v", err)
			}
		})
		return dir
	}
	t.Skip("no cgroup version 2 here")
	return ""
}

func TestFreezeStopsAndThawContinues(t *testing.T) {
	dir := makeCgroup(t)
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	ticks := func() string {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		return f[11] + "+" + f[12]
	}
	// moves waits up to a second for the process to use CPU time.
	moves := func() bool {
		before := ticks()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for range 100 {
			<-tick.C
			if ticks() != before {
				return true
			}
		}
		return false
	}
	f := freezer{dir}
	if !moves() {
		t.Fatal("the process does not run")
	}
	if err := f.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if moves() {
		t.Fatal("a frozen process runs")
	}
	if err := f.freeze(t.Context()); err != nil {
		t.Fatalf("freezing twice: %v", err)
	}
	if err := f.thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !moves() {
		t.Fatal("a thawed process does not run")
	}
}

func TestFreezeGivesUpAndThaws(t *testing.T) {
	dir := t.TempDir() // says "frozen 0" for ever
	if err := os.WriteFile(filepath.Join(dir, "cgroup.events"), []byte("frozen 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (freezer{dir}).freeze(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "cgroup.freeze")); string(got) != "0" {
		t.Fatalf("cgroup.freeze is %q", got)
	}
}

func makeCertificate(t *testing.T, subject pkix.Name) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestTrustCertificates(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("needs openssl to compare with")
	}
	root := t.TempDir()
	store := filepath.Join(root, "etc/ssl/certs")
	if err := os.MkdirAll(store, 0o755); err != nil {
		t.Fatal(err)
	}
	const before = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
	if err := os.WriteFile(filepath.Join(store, "ca-certificates.crt"), []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	same := pkix.Name{CommonName: "  Example   Root CA\t1 ", Organization: []string{"EXAMPLE Ünï", "Second"}, Country: []string{"DE"}}
	multi := pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "printable"},
		{Type: asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}, Value: asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte("Corp.Example")}},
	}}
	certs := []*x509.Certificate{makeCertificate(t, same), makeCertificate(t, same), makeCertificate(t, multi)}
	var bundle []byte
	for _, c := range certs {
		bundle = append(bundle, "# a comment\n"...)
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	for range 2 { // the second time changes nothing
		if err := trustCertificates(root, bundle); err != nil {
			t.Fatal(err)
		}
	}
	all, err := os.ReadFile(filepath.Join(store, "ca-certificates.crt"))
	if err != nil || !strings.HasPrefix(string(all), before+"\n") || bytes.Count(all, []byte("BEGIN CERTIFICATE")) != 4 {
		t.Fatalf("bundle %q, %v", all, err)
	}
	// The second has the name of the first, of which openssl takes the first.
	for i, c := range []*x509.Certificate{certs[0], certs[2]} {
		cmd := exec.Command(openssl, "verify", "-CApath", store)
		cmd.Stdin = bytes.NewReader(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("certificate %d: %v: %s", i, err, out)
		}
	}
	links, err := filepath.Glob(filepath.Join(store, "*.[0-9]"))
	if err != nil || len(links) != 3 {
		t.Fatalf("links %v, %v", links, err)
	}
	local, err := os.ReadDir(filepath.Join(root, "usr/local/share/ca-certificates"))
	if err != nil || len(local) != 3 {
		t.Fatalf("local %v, %v", local, err)
	}
	for _, bad := range []string{"", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if err := trustCertificates(root, []byte(bad)); err == nil {
			t.Errorf("%q was trusted", bad)
		}
	}
}

func TestMeasure(t *testing.T) {
	m, err := measure()
	if err != nil {
		t.Fatal(err)
	}
	if m.MemoryTotalBytes == 0 || m.MemoryAvailableBytes == 0 || m.DiskTotalBytes == 0 || m.UptimeSeconds == 0 || m.CpuBusyMillis == 0 || m.Processes == 0 {
		t.Fatalf("something is missing: %v", m)
	}
	got := new(agentv1.MetricsResponse)
	parseStat("cpu  10 20 30 1000 2000 1 2 3 99 99\ncpu0 1\n", got)
	if got.CpuBusyMillis != 660 {
		t.Fatalf("busy %d ms, want 660", got.CpuBusyMillis)
	}
	for _, text := range []string{"", "\n", "cpu", "cpu x y", "a b"} { // a kernel that writes something else
		parseStat(text, got)
		parseUptime(text, got)
		parseLoadavg(text, got)
		parseMeminfo(text, got)
	}
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "resolv.conf")
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o644), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := replaceFile(link, []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Lstat(link); err != nil || !st.Mode().IsRegular() {
		t.Fatalf("%v, %v", st, err)
	}
	if got, _ := os.ReadFile(target); string(got) != "old" {
		t.Fatalf("the link's target has %q", got)
	}
}

func TestOverwriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	inode := func() uint64 {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	write := func(text string) {
		t.Helper()
		if err := overwriteFile(path, []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q (%v), want %q", got, err, text)
		}
	}
	write("new")
	before := inode()
	write("two")
	if inode() != before {
		t.Error("a file of the same length was replaced")
	}
	write("longer")
	target := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(target, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
	write("ours!!")
	if got, err := os.ReadFile(target); err != nil || string(got) != "theirs" {
		t.Errorf("what a link led to has become %q (%v)", got, err)
	}
}

func TestAwaitUevent(t *testing.T) {
	if err := awaitUevent(time.Minute, func() (bool, error) { return true, nil }); err != nil {
		t.Fatal(err)
	}
	if err := awaitUevent(20*time.Millisecond, func() (bool, error) { return false, nil }); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
}

// What is right already is left alone: each step of a hand-off counts.
func TestRefreshLeavesAloneWhatIsRight(t *testing.T) {
	m := NewMachine(noExec{}, virtualMachine{freezer{t.TempDir()}}, slog.New(slog.DiscardHandler))
	names := func(r *agentv1.RefreshRequest) string {
		var all []string
		for _, s := range m.refreshSteps(t.Context(), r) {
			all = append(all, s.name)
		}
		return strings.Join(all, ", ")
	}
	r := &agentv1.RefreshRequest{UnixNanos: 1, Entropy: make([]byte, 32), Hostname: "a", MachineId: strings.Repeat("0", 32), Reseed: true}
	const all = "set clock, add entropy, set hostname, set machine id, renew what runs code, thaw"
	if got := names(r); got != all {
		t.Errorf("the first refresh takes %s", got)
	}
	m.hostname, m.machineID, m.thawed = r.Hostname, r.MachineId, true
	if got := names(r); got != "set clock, add entropy, renew what runs code" {
		t.Errorf("one of the same identity takes %s", got)
	}
	r.Hostname, r.MachineId = "b", strings.Repeat("1", 32)
	m.thawed = false // it was frozen
	if got := names(r); got != all {
		t.Errorf("one of another identity takes %s", got)
	}
}

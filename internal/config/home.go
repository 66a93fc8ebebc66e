package config

import "path/filepath"

// Home is a data directory. Its methods name what lies in it; no other place
// in the program spells these names.
type Home string

// Database is the SQLite file with all records.
func (h Home) Database() string { return filepath.Join(string(h), "ramet.db") }

// Templates holds <name>/<hash>/ for every built template.
func (h Home) Templates() string { return filepath.Join(string(h), "templates") }

// Instances holds a directory for every machine.
func (h Home) Instances() string { return filepath.Join(string(h), "instances") }

// Snapshots holds a directory for every snapshot that is kept.
func (h Home) Snapshots() string { return filepath.Join(string(h), "snapshots") }

// Bench holds a data directory for each server that 'ramet bench --driver' measures. It is
// gone when nothing is measured.
func (h Home) Bench() string { return filepath.Join(string(h), "bench") }

// BenchLog is the log of a server that was measured, when something failed on it.
func (h Home) BenchLog(driver string) string {
	return filepath.Join(string(h), "bench-"+driver+".log")
}

// Ballast takes up space, which is there for deletes once the disk is full.
func (h Home) Ballast() string { return filepath.Join(string(h), "ballast") }

// Key holds the API key of the local command line, readable by its owner only.
func (h Home) Key() string { return filepath.Join(string(h), "key") }

// ServerInfo describes the running server.
func (h Home) ServerInfo() string { return filepath.Join(string(h), "server.json") }

// Log is where a detached server writes.
func (h Home) Log() string { return filepath.Join(string(h), "server.log") }

// ACME holds the certificates and keys that came by ACME.
func (h Home) ACME() string { return filepath.Join(string(h), "acme") }

// Lock is held by the one server that may use the directory.
func (h Home) Lock() string { return filepath.Join(string(h), "lock") }

// HostState is where the servers of a host keep what they must share. It is
// emptied by a reboot.
const HostState = "/run/ramet"

// KVMProbe is the file in which the QEMU driver remembers whether a kernel
// really booted under KVM on this host.
const KVMProbe = HostState + "/kvm-probe.json"

// RunscName is the program of the gVisor driver, beside the server's. RunscVariable is the
// environment variable that names another one.
const (
	RunscName     = "ramet-runsc"
	RunscVariable = "RAMET_RUNSC"
)

// RunscPlaces are where that program is looked for first: beside the server's, and where a package puts it.
func RunscPlaces(program string) []string {
	dir := filepath.Dir(program)
	return []string{filepath.Join(dir, RunscName), filepath.Join(dir, "../libexec/ramet", RunscName)}
}

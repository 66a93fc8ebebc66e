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

// Ballast takes up space, which is there for deletes once the disk is full.
func (h Home) Ballast() string { return filepath.Join(string(h), "ballast") }

// Key holds the API key of the local command line, readable by its owner only.
func (h Home) Key() string { return filepath.Join(string(h), "key") }

// ServerInfo describes the running server.
func (h Home) ServerInfo() string { return filepath.Join(string(h), "server.json") }

// Log is where a detached server writes.
func (h Home) Log() string { return filepath.Join(string(h), "server.log") }

// Lock is held by the one server that may use the directory.
func (h Home) Lock() string { return filepath.Join(string(h), "lock") }

// HostState is where the servers of a host keep what they must share. It is
// emptied by a reboot.
const HostState = "/run/ramet"

// KVMProbe is the file in which the QEMU driver remembers whether a kernel
// really booted under KVM on this host.
const KVMProbe = HostState + "/kvm-probe.json"

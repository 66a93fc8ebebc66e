// Package sandbox holds the domain types: sandboxes, their states, shapes,
// templates, keys and the error taxonomy. It does no I/O and imports nothing
// of ours; everything else imports it.
package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"
)

// ID is the canonical id of a sandbox: 128 random bits as 32 lower-case
// hexadecimal digits.
type ID string

// NewID returns a fresh random id.
func NewID() ID { return ID(randomHex()) }

// String returns the id in the form that our API and CLI show: sbx_<32 hex>.
func (id ID) String() string { return "sbx_" + string(id) }

// Alphanumeric returns the id in the form that E2B's clients and the names of hosts take:
// i<32 hex>.
func (id ID) Alphanumeric() string { return "i" + string(id) }

// LogValue implements slog.LogValuer: logs show ids as users know them, in every format.
func (id ID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// ParseID accepts sbx_<32 hex>, i<32 hex> and the bare 32 digits.
func ParseID(s string) (ID, error) {
	h, ok := strings.CutPrefix(s, "sbx_")
	if !ok {
		h = strings.TrimPrefix(s, "i")
	}
	if !isHex32(h) {
		return "", Errorf(NotFound, "sandbox_not_found", "sandbox not found")
	}
	return ID(h), nil
}

// InstanceID names one life of a VM: its process, uid, sockets, cgroup,
// overlay and gateway. A sandbox gets a new instance at each boot; everything
// on the host is named by instance. 32 lower-case hexadecimal digits.
type InstanceID string

// NewInstanceID returns a fresh random id.
func NewInstanceID() InstanceID { return InstanceID(randomHex()) }

// ParseInstanceID accepts 32 lower-case hexadecimal digits.
func ParseInstanceID(s string) (InstanceID, bool) { return InstanceID(s), isHex32(s) }

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

func isHex32(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// State is where a sandbox is in its life.
type State string

// The states of a sandbox. Table says which changes are allowed.
const (
	Creating    State = "creating"
	Running     State = "running"
	Hibernating State = "hibernating"
	Hibernated  State = "hibernated"
	Waking      State = "waking"
	Stopping    State = "stopping"
	Stopped     State = "stopped"
	Failed      State = "failed"
)

// transitions is the one table of allowed state changes.
var transitions = map[State][]State{
	Creating:    {Running, Failed, Stopping},
	Running:     {Hibernating, Stopping, Failed},
	Hibernating: {Hibernated, Running, Failed, Stopping},
	Hibernated:  {Waking, Stopping, Failed},
	Waking:      {Running, Hibernated, Failed, Stopping},
	Stopping:    {Stopped},
	Failed:      {Stopping},
	Stopped:     {},
}

// HasMachine says that a sandbox in the state has a machine, which outlives the
// server. A machine that is only being made, or ended, does not count.
func (s State) HasMachine() bool { return s == Running || s == Hibernating || s == Waking }

// CanBecome says whether the table allows the change from s to next.
func (s State) CanBecome(next State) bool {
	for _, t := range transitions[s] {
		if t == next {
			return true
		}
	}
	return false
}

// Isolation says what stands between a guest and the host.
type Isolation string

// The isolation levels.
const (
	IsolationKVM      Isolation = "kvm"      // hardware virtualization
	IsolationGVisor   Isolation = "gvisor"   // a user-space kernel
	IsolationEmulated Isolation = "emulated" // a full VM by binary translation
)

// Shape is the size of a sandbox's machine.
type Shape struct {
	VCPUs    int `json:"vcpus"`
	MemoryMB int `json:"memory_mb"`
	DiskMB   int `json:"disk_mb"`
}

// DefaultShape is that of a sandbox that asks for none.
func DefaultShape() Shape {
	return Shape{VCPUs: DefaultVCPUs, MemoryMB: DefaultMemoryMB, DiskMB: DefaultDiskMB}
}

// Limits and defaults of a Shape.
const (
	DefaultVCPUs    = 2
	DefaultMemoryMB = 1024
	DefaultDiskMB   = 4096
	MinMemoryMB     = 512
	MaxMemoryMB     = 16384
	MaxDiskMB       = 65536
	// MemoryStepMB is the granularity of memory sizes: virtio-mem's block.
	MemoryStepMB = 128
)

// AllowedVCPUs lists the vCPU counts that a sandbox can have.
var AllowedVCPUs = []int{1, 2, 4, 8}

// Sandbox is the record of one sandbox.
type Sandbox struct {
	ID           ID
	Project      string
	Region       string
	Node         string
	Template     string // name, e.g. "default"
	TemplateHash string // content hash of the template it was made from
	State        State
	FailReason   string // one sentence, when it failed or the server stopped it
	// UnresponsiveSince is when the guest of a running sandbox stopped
	// answering; zero while it answers.
	UnresponsiveSince time.Time
	Instance          InstanceID
	Shape             Shape
	Isolation         Isolation
	// Egress says whether the sandbox reaches the outside at all, EgressPolicy what of it.
	Egress       bool
	EgressPolicy EgressPolicy
	Env          map[string]string
	Metadata     map[string]string
	// IdleTimeout is how long nobody may call the sandbox before it is stopped,
	// MaxLifetime how long after its create it is stopped in any case. 0 is never.
	IdleTimeout, MaxLifetime time.Duration
	// Deadline is the one that callers move, EndsAt when it is over; zero for none, and
	// while there is no machine.
	Deadline Deadline
	EndsAt   time.Time
	// PrivatePorts says that its ports are reached with the token of its traffic only.
	PrivatePorts bool
	// Persistent says that it becomes a Space when it is idle, instead of hibernating.
	Persistent bool
	// Origin says how it came to be, Parent of which sandbox, and Snapshot of which
	// checkpoint or Space; empty for one of a template.
	Origin   Origin
	Parent   ID
	Snapshot SnapshotID
	// MergedInto is the sandbox that took over its machine, when that ended it.
	MergedInto ID
	// Hibernation is the snapshot of a hibernated sandbox, and of one that goes to
	// sleep or wakes; else empty.
	Hibernation SnapshotID
	// BootNote says in one sentence why its last start kept its disk only and not its
	// memory; empty when it kept both.
	BootNote string
	// Idempotency says which idempotent call made it, "" for none.
	Idempotency string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// Key is the record of an API key. The secret itself is never stored.
type Key struct {
	ID        string // key_<16 hex>
	Name      string
	Project   string
	Hash      [32]byte // SHA-256 of the secret
	Prefix    string   // first characters of the secret, to recognise it by
	Admin     bool     // may make projects, and keys of any project
	CreatedAt time.Time
}

// Quota limits what is promised at one time. In the record of a project 0 stands
// for the server's default; a value below 0 is no limit. Where limits are in
// force 0 is none either.
type Quota struct {
	Sandboxes int
	MemoryMB  int
	DiskMB    int
}

// Or fills what q leaves open from the defaults.
func (q Quota) Or(defaults Quota) Quota {
	for _, f := range []struct {
		to  *int
		def int
	}{{&q.Sandboxes, defaults.Sandboxes}, {&q.MemoryMB, defaults.MemoryMB}, {&q.DiskMB, defaults.DiskMB}} {
		if *f.to == 0 {
			*f.to = f.def
		}
	}
	return q
}

// Usage is what is promised at one time. Sandboxes that have stopped or failed
// hold nothing, hibernated ones their disk only. What snapshots take is part of DiskMB.
type Usage struct {
	Sandboxes int
	MemoryMB  int
	DiskMB    int
}

// Project owns sandboxes and keys.
type Project struct {
	Name      string
	Quota     Quota
	Retention Retention
	CreatedAt time.Time
}

// DefaultProject owns everything until projects are made.
const DefaultProject = "default"

// Template describes a template that is built on this node.
type Template struct {
	Name      string
	Hash      string // content hash of its inputs, 64 hex digits
	SizeBytes int64  // on disk, goldens included
	BuiltAt   time.Time
	Goldens   []int // vCPU counts that have a golden snapshot
	Aliases   []string
}

package sandbox

import (
	"strings"
	"time"
)

// SnapshotID names a snapshot that is kept: 128 random bits as 32 lower-case
// hexadecimal digits.
type SnapshotID string

// NewSnapshotID returns a fresh random id.
func NewSnapshotID() SnapshotID { return SnapshotID(randomHex()) }

// ParseSnapshotID accepts 32 lower-case hexadecimal digits, as a snapshot's
// directory is named.
func ParseSnapshotID(s string) (SnapshotID, bool) { return SnapshotID(s), isHex32(s) }

// SnapshotUse says what a snapshot is kept for.
type SnapshotUse string

// The uses of snapshots.
const (
	// UseHibernation is the memory and disk of a hibernated sandbox.
	UseHibernation SnapshotUse = "hibernation"
	// UseCheckpoint is a named point that a sandbox can go back to, and that others can start from.
	UseCheckpoint SnapshotUse = "checkpoint"
	// UseSpace is a frozen sandbox that has ended, to be resumed once as a new one.
	UseSpace SnapshotUse = "space"
)

// SnapshotKind says what a snapshot holds.
type SnapshotKind string

// The kinds of snapshots.
const (
	SnapshotFull SnapshotKind = "full" // memory, devices and disk
	SnapshotDisk SnapshotKind = "disk" // the disk only: what starts from it boots
)

// SnapshotState is where a snapshot is in its life.
type SnapshotState string

// The states of a snapshot. One that is being made or deleted has an operation, or
// had one when the server ended: then it is removed.
const (
	SnapshotMaking   SnapshotState = "making"
	SnapshotReady    SnapshotState = "ready"
	SnapshotDeleting SnapshotState = "deleting"
)

// Snapshot is the record of a snapshot that is kept on the disk. Its settings are those
// that the sandbox had then; what is started from it has them too.
type Snapshot struct {
	ID      SnapshotID
	Project string
	Region  string
	Node    string
	// Sandbox is the one that it was made of. It may be gone.
	Sandbox ID
	Use     SnapshotUse
	Kind    SnapshotKind
	State   SnapshotState
	Name    string // of a checkpoint or Space; unique per sandbox and use unless empty

	Template     string
	TemplateHash string
	Shape        Shape
	Isolation    Isolation
	Settings     Settings

	// SizeBytes is what it takes on the disk by itself; layers that it shares with the
	// machine that it was made of count fully.
	SizeBytes int64
	CreatedAt time.Time
	// ExpiresAt is when its retention ends; zero for never.
	ExpiresAt time.Time
}

// Settings are what a sandbox hands on to its forks, and to what is started from its snapshots.
type Settings struct {
	Egress       bool              `json:"egress"`
	EgressPolicy EgressPolicy      `json:"egress_policy,omitzero"`
	Env          map[string]string `json:"env,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	IdleTimeout  time.Duration     `json:"idle_timeout_ns,omitempty"`
	MaxLifetime  time.Duration     `json:"max_lifetime_ns,omitempty"`
	Persistent   bool              `json:"persistent,omitempty"`
	Deadline     Deadline          `json:"deadline,omitzero"`
	PrivatePorts bool              `json:"private_ports,omitempty"`
}

// PublicID is the id in the form that our API and CLI show: ckp_<32 hex> for a
// checkpoint, spc_<32 hex> for a Space, snp_<32 hex> for others.
func (s Snapshot) PublicID() string { return snapshotPrefix(s.Use) + string(s.ID) }

func snapshotPrefix(u SnapshotUse) string {
	switch u {
	case UseCheckpoint:
		return "ckp_"
	case UseSpace:
		return "spc_"
	}
	return "snp_"
}

// ParsePublicSnapshotID accepts the shown form of a use, and the bare 32 digits.
func ParsePublicSnapshotID(s string, use SnapshotUse) (SnapshotID, error) {
	h := strings.TrimPrefix(s, snapshotPrefix(use))
	if !isHex32(h) {
		return "", Errorf(NotFound, string(use)+"_not_found", "%s not found", use)
	}
	return SnapshotID(h), nil
}

// Origin says how a sandbox came to be.
type Origin string

// The origins of sandboxes.
const (
	OriginCreate     Origin = ""           // of a template
	OriginFork       Origin = "fork"       // of a running sandbox
	OriginCheckpoint Origin = "checkpoint" // of a checkpoint
	OriginSpace      Origin = "space"      // of a Space
	// OriginRestore is the server's own record of a machine that is started to take the
	// place of another sandbox's. It is in no list.
	OriginRestore Origin = "restore"
)

// Retention says how long what is kept by itself is kept. In the record of a project 0
// stands for the server's default; below 0 is for ever. Where a retention is in force
// 0 is for ever too.
type Retention struct {
	Hibernated, Spaces, Checkpoints time.Duration
}

// Or fills what r leaves open from the defaults.
func (r Retention) Or(defaults Retention) Retention {
	for _, f := range []struct {
		to  *time.Duration
		def time.Duration
	}{{&r.Hibernated, defaults.Hibernated}, {&r.Spaces, defaults.Spaces}, {&r.Checkpoints, defaults.Checkpoints}} {
		if *f.to == 0 {
			*f.to = f.def
		}
	}
	return r
}

// Of returns the one that holds for a use.
func (r Retention) Of(u SnapshotUse) time.Duration {
	switch u {
	case UseCheckpoint:
		return r.Checkpoints
	case UseSpace:
		return r.Spaces
	}
	return r.Hibernated
}

// SaveInfo says what a save took and made.
type SaveInfo struct {
	SizeBytes int64
	// Paused is how long the machine stood still; 0 when it was left paused.
	Paused time.Duration
	// DirtyBytes is the memory that was copied.
	DirtyBytes int64
	Steps      []StepTime
}

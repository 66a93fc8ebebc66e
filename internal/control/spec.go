package control

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"ramet.dev/ramet/internal/sandbox"
)

// CreateRequest says what sandbox to make. Zero sizes and an empty template mean the defaults.
type CreateRequest struct {
	Template string
	Shape    sandbox.Shape
	NoEgress bool
	// EgressPolicy says what may be reached. Nil is the checkpoint's, or everything that is
	// not always closed.
	EgressPolicy *sandbox.EgressPolicy
	Env          map[string]string
	Metadata     map[string]string
	// IdleTimeout is how long without a call it takes until the sandbox hibernates, MaxLifetime
	// when it ends. 0 is the server's default, or the checkpoint's; Never is never.
	IdleTimeout, MaxLifetime time.Duration
	// Deadline is when it ends unless somebody gives it more time. Nil is none, or the checkpoint's.
	Deadline *sandbox.Deadline
	// PrivatePorts lets only those reach the sandbox's ports who have the token of its traffic.
	// Nil is false, or the checkpoint's.
	PrivatePorts *bool
	// Persistent makes the sandbox a Space when it is idle, instead of hibernating.
	Persistent bool
	// DeleteIdle deletes the sandbox when it is idle, unless it is persistent.
	DeleteIdle bool
	// Checkpoint, when set, is what to start from. Template and Shape are the checkpoint's then;
	// of its settings those hold that the request leaves out. NoEgress and Persistent hold
	// when either says so.
	Checkpoint sandbox.SnapshotID
	// Isolation, when set, is the one that the sandbox must have. Other machines than those are no
	// substitute, stronger ones neither.
	Isolation sandbox.Isolation
	// KeepSeed leaves the random number generators of the REPL as the checkpoint has them.
	KeepSeed bool
	// Idempotency is the tag of an idempotent call, see Once.
	Idempotency string

	// space is the Space to resume, resume what changes with that; from is the snapshot to start from.
	space  sandbox.SnapshotID
	resume ResumeRequest
	from   *sandbox.Snapshot
}

// Never is an IdleTimeout or MaxLifetime of a CreateRequest: there is none.
const Never time.Duration = -1

// Limits of what a caller may attach to a sandbox or a call, in bytes and entries.
const (
	maxEnvBytes      = 64 << 10
	maxMetadata      = 64
	maxMetadataKey   = 128
	maxMetadataValue = 4096
	maxNameLength    = 128
)

// check fills in the defaults and refuses what cannot be.
func (r *CreateRequest) check(hostMemoryMB int) error {
	if r.from != nil {
		if err := r.checkAgainst(*r.from); err != nil {
			return err
		}
	}
	if r.Template == "" {
		r.Template = "default"
	}
	if err := checkTemplateName(r.Template); err != nil {
		return err
	}
	if err := checkShape(&r.Shape, hostMemoryMB); err != nil {
		return err
	}
	if err := checkEnv(r.Env); err != nil {
		return err
	}
	if r.EgressPolicy != nil || r.from == nil {
		var policy sandbox.EgressPolicy
		if r.EgressPolicy != nil {
			policy = *r.EgressPolicy // the caller's stays as it is
		}
		if err := checkEgressPolicy(&policy); err != nil {
			return err
		}
		r.EgressPolicy = &policy
	}
	idle, life := max(r.IdleTimeout, 0), max(r.MaxLifetime, 0)
	if r.IdleTimeout != Never {
		idle = r.IdleTimeout
	}
	if r.MaxLifetime != Never {
		life = r.MaxLifetime
	}
	var deadline sandbox.Deadline
	if r.Deadline != nil {
		deadline = *r.Deadline
	}
	return firstOf(checkMetadata(r.Metadata), checkTimer("idle_timeout_s", idle), checkTimer("max_lifetime_s", life), checkDeadline(deadline))
}

// checkAgainst takes over what a snapshot decides, and refuses a request that wants it otherwise.
func (r *CreateRequest) checkAgainst(snap sandbox.Snapshot) error {
	if r.Template != "" && r.Template != snap.Template {
		return sandbox.Errorf(sandbox.Invalid, "invalid_template", "the %s stands on template %s; leave the template out", snap.Use, snap.Template)
	}
	for _, f := range []struct {
		name       string
		want, have int
	}{
		{"vcpus", r.Shape.VCPUs, snap.Shape.VCPUs}, {"memory_mb", r.Shape.MemoryMB, snap.Shape.MemoryMB}, {"disk_mb", r.Shape.DiskMB, snap.Shape.DiskMB},
	} {
		if f.want != 0 && f.want != f.have {
			return sandbox.Errorf(sandbox.Invalid, "invalid_shape", "the %s has %s %d, which cannot be changed; leave it out", snap.Use, f.name, f.have)
		}
	}
	r.Template, r.Shape = snap.Template, snap.Shape
	return nil
}

// settings returns those of the sandbox to make.
func (r *CreateRequest) settings(idle time.Duration) sandbox.Settings {
	s := sandbox.Settings{Egress: true, IdleTimeout: idle}
	if r.from != nil {
		s = r.from.Settings
	}
	s.Egress, s.Persistent = s.Egress && !r.NoEgress, s.Persistent || r.Persistent
	if r.EgressPolicy != nil {
		s.EgressPolicy = *r.EgressPolicy
	}
	if r.Env != nil {
		s.Env = r.Env
	}
	if r.Metadata != nil {
		s.Metadata = r.Metadata
	}
	if r.IdleTimeout != 0 {
		s.IdleTimeout = max(r.IdleTimeout, 0)
	}
	if r.MaxLifetime != 0 {
		s.MaxLifetime = max(r.MaxLifetime, 0)
	}
	if r.Deadline != nil {
		s.Deadline = *r.Deadline
	}
	if r.PrivatePorts != nil {
		s.PrivatePorts = *r.PrivatePorts
	}
	s.DeleteIdle = s.DeleteIdle || r.DeleteIdle
	if r.resume.Egress != nil {
		s.Egress = *r.resume.Egress
	}
	if r.resume.Persistent != nil {
		s.Persistent = *r.resume.Persistent
	}
	return s
}

func checkShape(s *sandbox.Shape, hostMemoryMB int) error {
	if s.VCPUs == 0 {
		s.VCPUs = sandbox.DefaultVCPUs
	}
	if s.MemoryMB == 0 {
		s.MemoryMB = sandbox.DefaultMemoryMB
	}
	if s.DiskMB == 0 {
		s.DiskMB = sandbox.DefaultDiskMB
	}
	if !slices.Contains(sandbox.AllowedVCPUs, s.VCPUs) {
		return sandbox.Errorf(sandbox.Invalid, "invalid_vcpus", "vcpus is %d; it can be 1, 2, 4 or 8", s.VCPUs)
	}
	if s.MemoryMB < sandbox.MinMemoryMB || s.MemoryMB > sandbox.MaxMemoryMB {
		return sandbox.Errorf(sandbox.Invalid, "invalid_memory", "memory_mb is %d; it can be %d to %d", s.MemoryMB, sandbox.MinMemoryMB, sandbox.MaxMemoryMB)
	}
	if s.MemoryMB%sandbox.MemoryStepMB != 0 {
		return sandbox.Errorf(sandbox.Invalid, "invalid_memory", "memory_mb is %d; it has to be a multiple of %d", s.MemoryMB, sandbox.MemoryStepMB)
	}
	if hostMemoryMB > 0 && s.MemoryMB > hostMemoryMB {
		return sandbox.Errorf(sandbox.Invalid, "invalid_memory", "memory_mb is %d, but this host has %d; ask for less", s.MemoryMB, hostMemoryMB)
	}
	if s.DiskMB < sandbox.DefaultDiskMB || s.DiskMB > sandbox.MaxDiskMB {
		return sandbox.Errorf(sandbox.Invalid, "invalid_disk", "disk_mb is %d; it can be %d to %d", s.DiskMB, sandbox.DefaultDiskMB, sandbox.MaxDiskMB)
	}
	return nil
}

// checkTemplateName refuses names that could be anything but one folder's name.
func checkTemplateName(name string) error {
	ok := name != "" && len(name) <= 63
	for i, c := range []byte(name) {
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != '_' && c != '.') {
			ok = false
		}
	}
	if !ok {
		return sandbox.Errorf(sandbox.Invalid, "invalid_template_name",
			"template %s is not a name; use up to 63 lower-case letters, digits, dots, dashes and underscores, with a letter or digit first", shown(name))
	}
	return nil
}

// checkProjectName refuses what could not be the name of a template either.
func checkProjectName(name string) error {
	if checkTemplateName(name) != nil {
		return sandbox.Errorf(sandbox.Invalid, "invalid_project",
			"project %s is not a name; use up to 63 lower-case letters, digits, dots, dashes and underscores, with a letter or digit first", shown(name))
	}
	return nil
}

func checkEnv(env map[string]string) error {
	size := 0
	for k, v := range env {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00\n") || !utf8.ValidString(k):
			return sandbox.Errorf(sandbox.Invalid, "invalid_env", "env has the name %s; a name cannot be empty or hold '=', NUL or a newline", shown(k))
		case strings.ContainsRune(v, 0):
			return sandbox.Errorf(sandbox.Invalid, "invalid_env", "the value of env %s holds a NUL byte, which no environment can hold", shown(k))
		}
		size += len(k) + len(v) + 2
	}
	if size > maxEnvBytes {
		return sandbox.Errorf(sandbox.Invalid, "invalid_env", "env has %d bytes; it can have %d", size, maxEnvBytes)
	}
	return nil
}

func checkMetadata(m map[string]string) error {
	if len(m) > maxMetadata {
		return sandbox.Errorf(sandbox.Invalid, "invalid_metadata", "metadata has %d entries; it can have %d", len(m), maxMetadata)
	}
	for k, v := range m {
		if k == "" || len(k) > maxMetadataKey || hasControl(k) || strings.ContainsRune(k, '=') {
			return sandbox.Errorf(sandbox.Invalid, "invalid_metadata",
				"metadata has the key %s; a key has 1 to %d bytes, no '=' and no control characters", shown(k), maxMetadataKey)
		}
		if len(v) > maxMetadataValue || strings.ContainsRune(v, 0) {
			return sandbox.Errorf(sandbox.Invalid, "invalid_metadata", "the value of metadata %s is too long or holds a NUL byte; it can have %d bytes", shown(k), maxMetadataValue)
		}
	}
	return nil
}

// checkName is for names that only people read.
func checkName(name string) error {
	if len(name) > maxNameLength || hasControl(name) {
		return sandbox.Errorf(sandbox.Invalid, "invalid_name", "name %s is too long or holds control characters; it can have %d bytes", shown(name), maxNameLength)
	}
	return nil
}

func checkUser(user string) error {
	if len(user) > 64 || hasControl(user) || strings.ContainsAny(user, ":/ ") {
		return sandbox.Errorf(sandbox.Invalid, "invalid_user", "user %s is not the name of a user", shown(user))
	}
	return nil
}

// maxTimeoutSeconds bounds the timeout of a run: a year.
const maxTimeoutSeconds = 366 * 24 * 3600

// timeoutMillis turns a caller's seconds into what the agent takes.
func timeoutMillis(seconds float64) (int64, error) {
	if !(seconds >= 0 && seconds <= maxTimeoutSeconds) {
		return 0, sandbox.Errorf(sandbox.Invalid, "invalid_timeout", "timeout_s has to be 0 (none) to %d seconds", maxTimeoutSeconds)
	}
	return int64(math.Ceil(seconds * 1000)), nil
}

func checkPath(field, path string) error {
	switch {
	case path == "":
		return sandbox.Errorf(sandbox.Invalid, "invalid_path", "%s is missing; give a path in the sandbox", field)
	case len(path) > 4096:
		return sandbox.Errorf(sandbox.Invalid, "invalid_path", "%s has %d bytes; a path can have 4096", field, len(path))
	case strings.ContainsRune(path, 0) || !utf8.ValidString(path):
		return sandbox.Errorf(sandbox.Invalid, "invalid_path", "%s holds a NUL byte or is not UTF-8", field)
	}
	return nil
}

func checkCwd(cwd string) error {
	if cwd == "" {
		return nil
	}
	return checkPath("cwd", cwd)
}

func hasControl(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
}

// shown makes a caller's text fit for a message: quoted and short.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if unicode.IsPrint(r) && r != '"' {
			b.WriteRune(r)
		} else {
			b.WriteRune('\uFFFD')
		}
	}
	b.WriteByte('"')
	return b.String()
}

// checkAttributes bounds the attributes of a file, as the agent does.
func checkAttributes(set map[string]string) error {
	size := 0
	for name, value := range set {
		if name == "" || len(name) > 250 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) || !utf8.ValidString(value) {
			return sandbox.Errorf(sandbox.Invalid, "invalid_attributes", "attribute %s is not possible: a name has 1 to 250 bytes, and name and value are UTF-8", shown(name))
		}
		size += len(name) + len(value)
	}
	if len(set) > 64 || size > 16<<10 {
		return sandbox.Errorf(sandbox.Invalid, "invalid_attributes", "there are %d attributes with %d bytes; a file can have 64 with %d in all", len(set), size, 16<<10)
	}
	return nil
}

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
	// EgressPolicy says what may be reached; zero is everything that is not always closed.
	EgressPolicy sandbox.EgressPolicy
	Env          map[string]string
	Metadata     map[string]string
	// IdleTimeout and MaxLifetime stop the sandbox by themselves; 0 is never.
	IdleTimeout, MaxLifetime time.Duration
	// Idempotency is the tag of an idempotent call, see Once.
	Idempotency string
}

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
	if err := checkEgressPolicy(&r.EgressPolicy); err != nil {
		return err
	}
	return firstOf(checkMetadata(r.Metadata), checkTimer("idle_timeout_s", r.IdleTimeout), checkTimer("max_lifetime_s", r.MaxLifetime))
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

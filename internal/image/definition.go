package image

import (
	"regexp"
	"slices"

	"ramet.dev/ramet/internal/sandbox"
)

// GuestCA says which certificate authorities are added to those of the
// distribution in a guest.
type GuestCA string

// The choices of GuestCA.
const (
	GuestCANone GuestCA = "none"
	// GuestCAHost installs what the host's administrator added to
	// /usr/local/share/ca-certificates, such as a company's TLS inspection.
	GuestCAHost GuestCA = "host"
)

// User is an account of the guest beside root.
type User struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
}

// Definition is the recipe of a template. It is hashed in canonical form: a
// field that changes what is built belongs here, anything else does not.
type Definition struct {
	// Name is the template's name. It is not part of the hash.
	Name string `json:"-"`
	// Suite is the Debian release, by its code name.
	Suite string `json:"suite"`
	// Packages are installed with their dependencies, without recommendations.
	Packages []string `json:"packages"`
	// Kernel is the package (or meta package) that the kernel is taken from.
	Kernel string `json:"kernel"`
	// NPM adds npm with the modules that it needs to run, and no more.
	NPM bool `json:"npm"`
	// Users get a home, bash and sudo without a password.
	Users []User `json:"users"`
	// GuestCA defaults to GuestCAHost.
	GuestCA GuestCA `json:"guest_ca"`
	// DiskMB is the size of the root disk, which is sparse, in MB.
	DiskMB int `json:"disk_mb"`
	// Epoch is any word. Changing it builds anew from the packages of the day.
	Epoch string `json:"epoch,omitempty"`
	// Fonts are drawn by matplotlib, in this order, what its own font has not. Their
	// packages are among Packages, as matplotlib is.
	Fonts []string `json:"fonts,omitempty"`
	// WarmUp is code that runs in the golden snapshot before it is saved, so that what it
	// loads is in the memory of every machine.
	WarmUp []WarmUp `json:"warm_up,omitempty"`
}

// WarmUp is a run of a warm-up.
type WarmUp struct {
	// Language is "python", "javascript" or "bash".
	Language string `json:"language"`
	Code     string `json:"code"`
}

var (
	nameRE    = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	suiteRE   = regexp.MustCompile(`^[a-z]{2,32}$`)
	packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,127}$`) // Debian policy 5.6.1
	fontRE    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ]{0,63}$`)
	userRE    = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
)

// normalize checks d and returns it with defaults filled in and lists in
// canonical order.
func (d Definition) normalize() (Definition, error) {
	bad := func(format string, args ...any) (Definition, error) {
		return d, sandbox.Errorf(sandbox.Invalid, "bad_template", format, args...)
	}
	if !nameRE.MatchString(d.Name) {
		return bad("template name %q is not valid: use lower-case letters, digits, '-' and '_', at most 63", d.Name)
	}
	if !suiteRE.MatchString(d.Suite) {
		return bad("suite %q is not the code name of a Debian release", d.Suite)
	}
	if d.GuestCA == "" {
		d.GuestCA = GuestCAHost
	}
	if d.GuestCA != GuestCAHost && d.GuestCA != GuestCANone {
		return bad("guest CA %q is not one of none, host", d.GuestCA)
	}
	if d.DiskMB < 1024 || d.DiskMB > sandbox.MaxDiskMB {
		return bad("template disk of %d MB is not between 1024 and %d", d.DiskMB, sandbox.MaxDiskMB)
	}
	d.Packages = slices.Clone(d.Packages)
	slices.Sort(d.Packages)
	d.Packages = slices.Compact(d.Packages)
	for _, p := range append([]string{d.Kernel}, d.Packages...) {
		if !packageRE.MatchString(p) {
			return bad("%q is not the name of a Debian package", p)
		}
	}
	for _, f := range d.Fonts {
		if !fontRE.MatchString(f) {
			return bad("%q is not the name of a font", f)
		}
	}
	for _, w := range d.WarmUp {
		if w.Language != "python" && w.Language != "bash" && w.Language != "javascript" {
			return bad("a warm-up in %q is not one of python, bash, javascript", w.Language)
		}
	}
	d.Users = slices.Clone(d.Users)
	slices.SortFunc(d.Users, func(a, b User) int { return a.UID - b.UID })
	for _, u := range d.Users {
		if !userRE.MatchString(u.Name) || u.UID < 1000 || u.UID > 59999 {
			return bad("user %q with uid %d is not valid: uids are 1000 to 59999", u.Name, u.UID)
		}
	}
	return d, nil
}

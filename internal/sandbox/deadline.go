package sandbox

import "time"

// Deadline says how long a sandbox runs that nobody gives more time, and what becomes
// of it then. The zero value is none.
type Deadline struct {
	// After counts from the moment at which the sandbox runs, and anew at each wake. 0 is never.
	After time.Duration `json:"after_ns,omitempty"`
	// Then is what happens at its end; empty is AtEndDelete.
	Then AtEnd `json:"then,omitempty"`
	// ManualWake says that traffic to the sandbox's ports does not wake it once it hibernates.
	// Calls of its project do.
	ManualWake bool `json:"manual_wake,omitempty"`
}

// AtEnd is what becomes of a sandbox at its deadline.
type AtEnd string

// The ends.
const (
	AtEndDelete        AtEnd = "delete"
	AtEndHibernate     AtEnd = "hibernate"
	AtEndHibernateDisk AtEnd = "hibernate_disk" // without its memory
)

// Begin sets when the deadline of a sandbox that runs is over.
func (sb *Sandbox) Begin(now time.Time) {
	sb.EndsAt = time.Time{}
	if sb.Deadline.After > 0 {
		sb.EndsAt = now.Add(sb.Deadline.After).UTC().Truncate(time.Microsecond) // as records keep it
	}
}

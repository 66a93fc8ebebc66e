package sandbox

import "slices"

// Isolations lists the levels, the strongest first.
func Isolations() []Isolation {
	return []Isolation{IsolationKVM, IsolationGVisor, IsolationEmulated}
}

// AtLeast says whether i is as strong as least, or stronger. Everything is at least "".
func (i Isolation) AtLeast(least Isolation) bool {
	if least == "" {
		return true
	}
	levels := Isolations()
	have, want := slices.Index(levels, i), slices.Index(levels, least)
	return have >= 0 && have <= want
}

// ParseIsolation reads the name of a level. Empty is none.
func ParseIsolation(name string) (Isolation, error) {
	if i := Isolation(name); name == "" || slices.Contains(Isolations(), i) {
		return i, nil
	}
	return "", Errorf(Invalid, "invalid_isolation", "isolation is %.40q; it can be kvm, gvisor or emulated", name)
}

// Notice is what whoever starts a server has to know of its machines, in two sentences, or ""
// where the hardware isolates them.
func (i Isolation) Notice() string {
	const more = "docs/isolation.md says what that protects against, and what not."
	switch i {
	case IsolationGVisor:
		return "Sandboxes are not isolated by hardware here: their isolation is gvisor, a kernel in user space. " + more
	case IsolationEmulated:
		return "Sandboxes are not isolated by hardware here: their machines are emulated, and QEMU promises no security for that. " + more
	}
	return ""
}

package control

import "ramet.dev/ramet/internal/sandbox"

// isolation is that of the machines that would be started now, or "" when that is only known
// of a machine that has started.
func (c *Control) isolation() sandbox.Isolation {
	if c.cfg.Isolation == nil {
		return ""
	}
	return c.cfg.Isolation()
}

// checkIsolation refuses a request that requires another isolation than what it starts from has,
// or machines have. It is asked before anything is made and again of the machine that was made,
// which is the first to know where have is "".
func (r *CreateRequest) checkIsolation(have sandbox.Isolation) error {
	want, err := sandbox.ParseIsolation(string(r.Isolation))
	if err != nil || want == "" {
		return err
	}
	if r.from != nil && r.from.Isolation != "" && r.from.Isolation != want {
		return sandbox.Errorf(sandbox.Invalid, codeIsolation,
			"the %s is of a machine whose isolation was %s, not %s; start from a template, or leave isolation out", r.from.Use, r.from.Isolation, want)
	}
	if have == "" || have == want {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, codeIsolation,
		"the isolation of this server's sandboxes is %s, not %s; leave isolation out, or use a server %s", have, want, serversWith[want])
}

const codeIsolation = "isolation_unavailable"

// serversWith says which servers have an isolation.
var serversWith = map[sandbox.Isolation]string{
	sandbox.IsolationKVM:      "with the driver auto or qemu on a host where KVM works ('ramet doctor' says whether it does)",
	sandbox.IsolationGVisor:   "with the driver gvisor",
	sandbox.IsolationEmulated: "with the driver qemu and accel tcg",
}

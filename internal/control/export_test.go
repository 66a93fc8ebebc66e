package control

import "ramet.dev/ramet/internal/sandbox"

// Idle does what happens when a sandbox's idle timeout is over.
func (c *Control) Idle(project string, id sandbox.ID) error {
	return c.idle(project, id, ending{cause: causeIdle, reason: "a test says so"}, sandbox.AtEndHibernate)
}

// BeginClose does what Close begins with: every operation is cancelled when it returns.
func (c *Control) BeginClose() { c.close(errClosing) }

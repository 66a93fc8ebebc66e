package control

import "ramet.dev/ramet/internal/sandbox"

// Idle does what happens when a sandbox's idle timeout is over.
func (c *Control) Idle(project string, id sandbox.ID) error {
	return c.idle(project, id, ending{cause: causeIdle, reason: "a test says so"}, sandbox.AtEndHibernate)
}

// BeginClose does what Close begins with: every operation is cancelled when it returns.
func (c *Control) BeginClose() { c.close(errClosing) }

// InUse returns how many calls keep a sandbox from being idle.
func (c *Control) InUse(id sandbox.ID) int {
	c.lives.mu.Lock()
	defer c.lives.mu.Unlock()
	if l := c.lives.byID[id]; l != nil {
		return l.calls
	}
	return 0
}

package control

import "ramet.dev/ramet/internal/sandbox"

// Idle does what happens when a sandbox's idle timeout is over.
func (c *Control) Idle(project string, id sandbox.ID) error {
	return c.idle(project, id, "a test says so")
}

// Closing is closed when Close has begun.
func (c *Control) Closing() <-chan struct{} { return c.life.Done() }

// Package traffic names what the parts of the E2B surface tell each other about a
// call to a sandbox: a call that is not to the control API, but to something that
// the official clients believe to run in the guest.
package traffic

import (
	"ramet.dev/ramet/internal/sandbox"
)

// The guest ports at which the official clients expect services of E2B's own.
// The server answers for them; nothing listens there in the guest.
const (
	EnvdPort        = 49983
	InterpreterPort = 49999
)

// Target is the sandbox that a call is for. Whoever makes one has found the record
// and checked what entitles the caller, except what the service itself checks by Token.
type Target struct {
	Project string
	ID      sandbox.ID
	// Instance is the machine that it had when the request came.
	Instance sandbox.InstanceID
	// Shown is the sandbox's id as E2B's clients know it, for errors.
	Shown string
	// Token is what X-Access-Token must be; "" when the sandbox asks for none.
	Token string
	// User is who a call is made as that names nobody.
	User string
}

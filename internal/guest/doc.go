// Package guest is the host's side of the agent in a guest: Dial makes a Client
// from the machine's byte stream, and Error turns what a call returned into
// what a user may read.
//
// It owns the HTTP/2 connection, its health and its bounds; nothing that a
// guest sends may cost the host more than they allow. It does not know machines
// or sandboxes: package worker opens the stream and decides when. The protocol
// is in api/agent/v1, the byte stream in guest/wire, the other side in
// guest/agent, guest/exec and guest/reap.
package guest

// Package wire owns the byte stream between the host and the agent: how both
// ends find a common start in it, and HTTP/2 on top.
//
// The stream is a virtio-serial port. It outlives everything that uses it: a
// snapshot saves bytes in flight in both directions, a host that dies leaves
// half a frame, and the guest cannot see either. So the host opens each
// connection with a preamble, 32 fixed bytes and a random nonce of 16. The
// guest looks for the 32 bytes in all that comes in, also in the middle of a
// session. When they appear, the old session is over; the guest answers with
// 32 other fixed bytes and the nonce, and serves a new one. The host discards
// everything before the answer to its own nonce. Older bytes never matter, in
// either direction.
//
// Start reading at Listener (guest) and Dial (host). What is said in HTTP/2
// belongs to the packages guest and guest/agent.
package wire

import "crypto/sha256"

const nonceSize = 16

// Hashes, so that the bytes are in no file and in no program: a guest that
// copies its own binary through the stream does not cut it.
var (
	preambleMagic = sha256.Sum256([]byte("ramet agent preamble v1"))
	replyMagic    = sha256.Sum256([]byte("ramet agent reply v1"))
)

package guest_test

import (
	"net"
	"sync/atomic"
)

// gate is a guest's end of the stream that can fall silent: while it is shut,
// what the guest writes waits (for good once it waits) until open is closed.
type gate struct {
	net.Conn
	shut atomic.Bool
	open chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	if g.shut.Load() {
		<-g.open
	}
	return g.Conn.Write(p)
}

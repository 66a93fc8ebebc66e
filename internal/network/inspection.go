package network

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"time"
)

// answerTimeout is how long a server may take to answer a request to switch
// protocols, while the guest already sends on.
const answerTimeout = 30 * time.Second

// inspection is the inspector of one flow, with its deadline and its refusals.
// All methods do nothing on nil, which is a flow whose name does not matter.
type inspection struct {
	g        *Gateway
	f        *flow
	in       *inspector
	deadline *time.Timer // nil while nothing is held back

	// The server's first bytes, until answered is closed; switched is set before.
	first    []byte
	answered chan struct{}
	done     bool
	switched bool
}

func (g *Gateway) newInspection(f *flow) *inspection {
	if !f.inspect {
		return nil
	}
	x := &inspection{g: g, f: f, answered: make(chan struct{})}
	x.in = newInspector(x.judge, x.wait)
	return x
}

// refusal is a verdict as an error.
type refusal struct{ verdict }

func (r *refusal) Error() string { return r.reason }

func (x *inspection) judge(shown string) error {
	// Noted first, so that a change of policy meanwhile misses nothing.
	if shown != "" {
		x.f.shown.Store(&shown)
	}
	if v := x.g.current().judgeShown(x.f.dst, shown); !v.ok() {
		return &refusal{v}
	}
	return nil
}

// pass writes to w what may pass on of the bytes that the guest sends.
func (x *inspection) pass(b []byte, w io.Writer) error {
	if x == nil {
		_, err := w.Write(b)
		return err
	}
	for {
		out, err := x.feed(b)
		if err == nil && len(out) > 0 {
			_, err = w.Write(out)
		}
		if err != nil || !x.in.paused() {
			return err
		}
		b = nil
	}
}

func (x *inspection) feed(b []byte) ([]byte, error) {
	out, err := x.in.feed(b)
	if len(out) > 0 {
		x.stop() // what is held back now is new
	}
	switch {
	case err != nil:
		x.refuse(err)
	case !x.in.pending():
		x.stop()
	case x.in.paused(): // upgrade has a deadline of its own
	case x.deadline == nil:
		x.deadline = time.AfterFunc(x.g.limits.HeadTimeout, func() {
			if x.g.begin() {
				defer x.g.work.Done()
				x.refuse(errHeldTimeout)
			}
		})
	}
	return out, err
}

// ended is the end of what the guest sends.
func (x *inspection) ended() error {
	if x == nil || !x.in.pending() {
		return nil
	}
	x.refuse(errHeldEOF)
	return errHeldEOF
}

// refuse reports a refusal and cuts the flow.
func (x *inspection) refuse(err error) {
	if x.f.ctx.Err() != nil {
		return // cut already; the error is only a consequence
	}
	v := verdict{reason: reasonUnreadable + ": " + err.Error(), rule: ruleUnreadable}
	var r *refusal
	if errors.As(err, &r) {
		v = r.verdict
	}
	if v.name == "" && len(x.f.names) > 0 {
		v.name = x.f.names[0]
	}
	x.g.denyFlow(x.f, v)
	x.f.cancel()
}

// received looks at what the server sends, empty at its end.
func (x *inspection) received(b []byte) {
	const status = "HTTP/1.1 101"
	if x == nil || x.done {
		return
	}
	x.first = append(x.first, b[:min(len(b), len(status)-len(x.first))]...)
	if len(b) > 0 && len(x.first) < len(status) {
		return
	}
	x.done = true
	x.switched = bytes.Equal(x.first, []byte(status))
	close(x.answered)
}

func (x *inspection) wait() (switched bool, err error) {
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	select {
	case <-x.answered:
		return x.switched, nil
	case <-timeout.C:
		return false, errNotAnswered
	case <-x.f.ctx.Done():
		return false, errAborted
	}
}

// stop ends the deadline. Like pass, it is for the goroutine that reads from
// the guest, or after it.
func (x *inspection) stop() {
	if x != nil && x.deadline != nil {
		x.deadline.Stop()
		x.deadline = nil
	}
}

// judgeShown decides about a name that the first bytes of a connection show.
// None, or the very address that is dialled, adds nothing to the verdict at
// the dial.
func (c *compiled) judgeShown(dst netip.AddrPort, shown string) verdict {
	if shown == "" || !c.nameMatters(dst) {
		return allowed
	}
	if a, err := netip.ParseAddr(shown); err == nil && a.Unmap() == dst.Addr() {
		return allowed
	}
	name, ok := canonicalName(shown)
	if !ok {
		return verdict{reason: reasonOddName, rule: ruleOddName, name: shown}
	}
	return c.judge(dst, name)
}

package control

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// What a guest's denials may cost the events, which all projects share: a burst, then
// one event a minute, for each sandbox. What is not written at once is counted.
const (
	denialBurst = 30
	denialEvery = time.Minute
	// denialKinds is how many different denials of a sandbox are counted apart.
	denialKinds = 64
)

// denialKind is what equal denials have in common.
type denialKind struct {
	protocol     string
	addr         netip.AddrPort
	host         string
	reason, rule string
}

// denials counts what the network of one machine refused and is in no event yet.
type denials struct {
	pace    *rate.Limiter
	pending map[denialKind]int // how many since the last event of the kind
	others  int                // of kinds that found no room in pending
}

func newDenials() *denials {
	return &denials{pace: rate.NewLimiter(rate.Every(denialEvery), denialBurst), pending: map[denialKind]int{}}
}

// add takes in one denial, and returns the event that it is at once if it is the first
// of its kind for a while.
func (d *denials) add(now time.Time, k denialKind) (store.Event, bool) {
	switch n, known := d.pending[k]; {
	case known:
		d.pending[k] = n + 1
	case len(d.pending) < denialKinds && d.pace.AllowN(now, 1):
		d.pending[k] = 0
		return k.event(1, ""), true
	default:
		d.others++
	}
	return store.Event{}, false
}

// due returns the events of what was counted, as far as the pace allows, and forgets kinds
// of which there was none.
func (d *denials) due(now time.Time) []store.Event {
	var events []store.Event
	for k, n := range d.pending {
		switch {
		case n == 0:
			delete(d.pending, k)
		case d.pace.AllowN(now, 1):
			again := " again"
			if n > 1 {
				again = fmt.Sprintf(" %d times more", n)
			}
			events = append(events, k.event(n, again))
			d.pending[k] = 0
		}
	}
	if d.others > 0 && d.pace.AllowN(now, 1) {
		events = append(events, othersEvent(d.others))
		d.others = 0
	}
	return events
}

// idle says that nothing is left to remember, the pace included.
func (d *denials) idle(now time.Time) bool {
	return len(d.pending) == 0 && d.others == 0 && d.pace.TokensAt(now) >= denialBurst
}

func kindOf(d sandbox.EgressDenial) denialKind {
	return denialKind{
		protocol: d.Protocol, addr: d.Addr, host: strings.ToValidUTF8(strings.TrimSuffix(d.Host, "."), "\uFFFD"),
		reason: strings.ToValidUTF8(d.Reason[:min(len(d.Reason), 200)], "\uFFFD"), rule: d.Rule,
	}
}

// event tells of n denials; again is how it says so of those that are not the first.
func (k denialKind) event(n int, again string) store.Event {
	data := map[string]string{"protocol": k.protocol, "rule": k.rule, "why": k.reason, "count": strconv.Itoa(n)}
	if k.host != "" {
		data["host"] = k.host
	}
	what := "a connection to "
	switch k.protocol {
	case "udp":
		what = "datagrams to "
	case "dns":
		what = "a question for "
	}
	if k.addr.IsValid() {
		data["ip"], data["port"] = k.addr.Addr().String(), strconv.Itoa(int(k.addr.Port()))
		what += k.addr.String()
		if k.host != "" {
			what += " as " + shown(k.host)
		}
	} else {
		what += shown(k.host)
	}
	return store.Event{
		Type: "egress_denied", Cause: causePolicy, Data: data,
		Reason: fmt.Sprintf("%s was refused%s: %s (%s)", what, again, k.reason, k.rule),
	}
}

func othersEvent(n int) store.Event {
	return store.Event{
		Type: "egress_denied", Cause: causePolicy, Data: map[string]string{"count": strconv.Itoa(n)},
		Reason: fmt.Sprintf("%d more connections and questions, to many destinations, were refused", n),
	}
}

// watchDenials makes events of what the networks of machines refuse.
func (c *Control) watchDenials() {
	of := map[sandbox.InstanceID]*denials{}
	ticker := time.NewTicker(c.cfg.DenialWindow)
	defer ticker.Stop()
	for {
		select {
		case d, ok := <-c.machines.Denials():
			if !ok {
				return
			}
			if of[d.Instance] == nil {
				of[d.Instance] = newDenials()
			}
			kind := kindOf(d)
			if e, now := of[d.Instance].add(time.Now(), kind); now && !c.noteDenial(d.Instance, e) {
				of[d.Instance].pending[kind]++
			}
		case <-ticker.C:
			for id, d := range of {
				for _, e := range d.due(time.Now()) {
					c.noteDenial(id, e)
				}
				if d.idle(time.Now()) || !c.machines.Alive(id) {
					delete(of, id)
				}
			}
		case <-c.life.Done():
			return
		}
	}
}

// noteDenial writes an event and says whether it is written. It is not for a machine
// whose create has not ended yet, since the record may not name it before.
func (c *Control) noteDenial(id sandbox.InstanceID, e Event) bool {
	ctx, cancel := context.WithTimeout(c.life, c.cfg.StopTimeout)
	defer cancel()
	err := c.Note(ctx, id, e)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound && c.life.Err() == nil {
		c.log.Warn("record a denial of a machine's network", "instance", id, "reason", e.Reason, "err", err)
	}
	return err == nil
}

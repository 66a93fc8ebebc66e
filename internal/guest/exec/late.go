package exec

import agentv1 "ramet.dev/ramet/api/agent/v1"

// maxLate is how many bytes are kept of what the interpreter prints between calls.
const maxLate = 1 << 20

// late keeps events that came when no call was running, up to a bound.
type late struct {
	events  []*agentv1.Event
	size    int
	dropped uint64
}

func (l *late) add(e *agentv1.Event) {
	n := int(payload(e))
	if l.size+n+eventOverhead > maxLate {
		l.dropped += uint64(n)
		return
	}
	l.size += n + eventOverhead
	l.events = append(l.events, e)
}

// take returns what was kept, with a Truncated event when something is missing.
func (l *late) take() []*agentv1.Event {
	events := l.events
	if l.dropped > 0 {
		events = append(events, &agentv1.Event{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: l.dropped}}})
	}
	*l = late{}
	return events
}

package exec

import agentv1 "ramet.dev/ramet/api/agent/v1"

// A journal rolls: a server or a terminal may print for weeks, and what it prints
// now matters more than what it printed at first. Whoever follows it and keeps up misses
// nothing, however much it is. The file is two of half the size; when the newer one is full, the older one is forgotten, with everything before it. A
// subscriber that has not read that far finds one Truncated event in its place, with the
// number of the last event that is missing.

// rolled is what a journal that rolls has besides.
type rolled struct {
	base    uint64 // number of the first event that is kept
	lost    uint64 // bytes of output before that one
	total   uint64 // bytes of output so far
	older   *spool // the file before the current one; nil: none
	inOlder uint64 // how many events it holds
	bytes   int64  // what it takes of the budget
	stale   []*spool
}

// roll adds an event, in the place of the oldest if need be. Where even that makes no room, as on
// a full disk, it is dropped, and what was dropped is told when there is room again.
func (j *journal) roll(e *agentv1.Event) {
	if j.dropped > 0 && j.place(&agentv1.Event{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: j.dropped}}}) {
		j.dropped = 0
	}
	if j.dropped > 0 || !j.place(e) {
		j.dropped += payload(e)
	}
}

func (j *journal) place(e *agentv1.Event) bool {
	stored := j.store(e)
	for i := 0; i < 2 && !stored && j.forget(); i++ {
		stored = j.store(e)
	}
	if stored {
		j.mu.Lock()
		j.rolled.total += payload(e)
		if j.spool != nil && j.spool.first == e.Seq {
			j.spool.before = j.rolled.total - payload(e)
		}
		j.mu.Unlock()
	}
	return stored
}

// forget makes the current file the older one and drops what came before it. False: there is no file.
func (j *journal) forget() bool {
	if j.cfg.dir == "" || j.spool == nil && j.rolled.older == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	r := &j.rolled
	if r.older != nil {
		j.cfg.disk.give(r.bytes)
		r.stale = append(r.stale, r.older)
		r.base += uint64(len(j.head)) + r.inOlder
		r.lost = r.total
		if j.spool != nil {
			r.lost = j.spool.before
		}
		j.head = nil
		j.cfg.ram.give(j.paid)
		j.memBytes, j.paid = 0, 0
	}
	r.older, r.inOlder, r.bytes = j.spool, j.inSpool, j.spooled
	j.spool, j.inSpool, j.size, j.spooled = nil, 0, 0, 0
	j.closeStaleLocked()
	return true
}

// closeStaleLocked closes files that were forgotten and that no subscriber reads any more.
func (j *journal) closeStaleLocked() {
	kept := j.rolled.stale[:0]
	for _, file := range j.rolled.stale {
		used := false
		for s := range j.subs {
			used = used || s.file == file
		}
		if used {
			kept = append(kept, file)
		} else {
			file.file.Close()
		}
	}
	j.rolled.stale = kept
}

// passedLocked returns how many bytes of output come before an event, at least.
func (j *journal) passedLocked(seq uint64) uint64 {
	r := &j.rolled
	head := r.base + uint64(len(j.head))
	switch {
	case seq == 0 || seq < r.base:
		return 0
	case seq < head:
		return r.lost + payloads(j.head[:seq-r.base])
	case seq < head+r.inOlder:
		return r.older.before
	case seq < head+r.inOlder+j.inSpool:
		return j.spool.before
	}
	return r.total
}

// missedLocked is the event in the place of those that a subscriber has not read in time.
func (s *subscriber) missedLocked() *agentv1.Event {
	r := &s.j.rolled
	missed := &agentv1.Truncated{Bytes: r.lost - s.passed}
	s.seq, s.passed = r.base-1, r.lost-missed.Bytes // what is told is added by the caller
	return &agentv1.Event{Seq: r.base - 1, Kind: &agentv1.Event_Truncated{Truncated: missed}}
}

func payloads(events []*agentv1.Event) (n uint64) {
	for _, e := range events {
		n += payload(e)
	}
	return n
}

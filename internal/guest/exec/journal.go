package exec

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

const (
	// freeMemory is what a journal may hold in memory in any case, in bytes.
	freeMemory = 16 << 10
	// eventOverhead is what an event costs in memory beside its bytes.
	eventOverhead = 128
	// readBatch is about how many bytes a subscriber takes at once.
	readBatch = 256 << 10
)

// journal is the history of one run: events numbered from 0 without holes. The
// first ones are in memory, later ones in a file. At its limit the oldest go, see
// rolling.go. Appending never waits for a subscriber.
type journal struct {
	cfg *journalConfig

	// appending is held by whoever adds an event, also while it writes the file.
	appending sync.Mutex
	dropped   uint64 // bytes of output for which there was no room, and which are not told yet
	memBytes  int64
	paid      int64 // part of memBytes that is on the shared budget
	spooled   int64

	mu       sync.Mutex
	head     []*agentv1.Event // the first events
	spool    *spool           // nil: none yet
	size     int64            // bytes of the spool that may be read
	inSpool  uint64           // how many events it holds
	rolled   rolled
	tail     []*agentv1.Event // what came after the limit: Truncated and Exit
	exit     *agentv1.Exit
	subs     map[*subscriber]struct{}
	released bool
}

// journalConfig is what all journals share.
type journalConfig struct {
	dir    string // empty: memory only
	memory int64  // of one journal, bytes
	file   int64  // of one journal, bytes
	ram    budget
	disk   budget
}

func newJournal(cfg *journalConfig) *journal {
	return &journal{cfg: cfg, subs: make(map[*subscriber]struct{})}
}

// append adds an event and gives it its number. Events after the Exit are
// ignored.
func (j *journal) append(e *agentv1.Event) {
	j.appending.Lock()
	defer j.appending.Unlock()
	if j.ended() {
		return
	}
	if exit := e.GetExit(); exit != nil {
		if j.dropped > 0 {
			j.publishTail(&agentv1.Event{Kind: &agentv1.Event_Truncated{Truncated: &agentv1.Truncated{Bytes: j.dropped}}})
		}
		j.publishTail(e)
		return
	}
	j.roll(e)
}

// store puts an event in memory or in the file. False: there is no room.
func (j *journal) store(e *agentv1.Event) bool {
	cost := int64(proto.Size(e)) + eventOverhead
	if j.spool == nil && j.rolled.older == nil && j.memBytes+cost <= j.cfg.memory {
		if j.memBytes+cost > freeMemory {
			if !j.cfg.ram.take(cost) {
				return j.toFile(e)
			}
			j.paid += cost
		}
		j.memBytes += cost
		j.mu.Lock()
		e.Seq = j.nextLocked()
		j.head = append(j.head, e)
		j.wakeLocked()
		j.mu.Unlock()
		return true
	}
	return j.toFile(e)
}

func (j *journal) toFile(e *agentv1.Event) bool {
	if j.cfg.dir == "" {
		return false
	}
	file := j.spool
	if file == nil {
		opened, err := openSpool(j.cfg.dir)
		if err != nil {
			return false
		}
		file = opened
	}
	e.Seq = j.next()
	data, err := record(e)
	n := int64(len(data))
	if err != nil || j.spooled+n > j.cfg.file/2 || !j.cfg.disk.take(n) {
		return j.keepSpool(file, false)
	}
	if _, err := file.file.WriteAt(data, file.size); err != nil {
		j.cfg.disk.give(n)
		return j.keepSpool(file, false) // most likely the disk is full
	}
	j.spooled += n
	j.mu.Lock()
	if last := len(file.index) - 1; last < 0 || file.size-file.index[last].offset >= indexEvery {
		file.index = append(file.index, mark{e.Seq, file.size})
	}
	file.size += n
	if j.spool == nil {
		file.first = e.Seq
	}
	j.spool, j.size = file, file.size
	j.inSpool++
	j.wakeLocked()
	j.mu.Unlock()
	return true
}

// keepSpool closes a file that was just opened in vain.
func (j *journal) keepSpool(file *spool, ok bool) bool {
	if !ok && j.spool == nil {
		file.file.Close()
	}
	return ok
}

func (j *journal) publishTail(e *agentv1.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Seq = j.nextLocked()
	j.tail = append(j.tail, e)
	j.exit = e.GetExit()
	j.wakeLocked()
}

func (j *journal) nextLocked() uint64 {
	return j.rolled.base + uint64(len(j.head)) + j.rolled.inOlder + j.inSpool + uint64(len(j.tail))
}

func (j *journal) next() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.nextLocked()
}

func (j *journal) wakeLocked() {
	for s := range j.subs {
		if s.patient && j.exit == nil {
			continue
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (j *journal) ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.exit != nil
}

// state returns the next sequence number and the Exit, if there is one.
func (j *journal) state() (next uint64, exit *agentv1.Exit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.nextLocked(), j.exit
}

// latest returns the number of the event that comes next, or that of the Exit
// when nothing comes any more.
func (j *journal) latest() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.exit != nil {
		return j.nextLocked() - 1
	}
	return j.nextLocked()
}

// release gives up memory and file. Who reads now reads to the end.
func (j *journal) release() {
	j.appending.Lock()
	defer j.appending.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.released {
		return
	}
	j.released = true
	j.cfg.ram.give(j.paid)
	j.cfg.disk.give(j.spooled + j.rolled.bytes)
	j.closeLocked()
}

func (j *journal) closeLocked() {
	j.closeStaleLocked()
	if !j.released || len(j.subs) > 0 {
		return
	}
	for _, s := range []*spool{j.spool, j.rolled.older} {
		if s != nil {
			s.file.Close()
		}
	}
}

// payload is how many bytes of a user's output an event carries.
func payload(e *agentv1.Event) uint64 {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_Stdout:
		return uint64(len(k.Stdout))
	case *agentv1.Event_Stderr:
		return uint64(len(k.Stderr))
	case *agentv1.Event_Truncated:
		return k.Truncated.GetBytes()
	case *agentv1.Event_Result:
		var n uint64
		for _, v := range k.Result.GetData() {
			n += uint64(len(v))
		}
		return n
	}
	return 0
}

// subscriber reads a journal at its own speed.
type subscriber struct {
	j      *journal
	seq    uint64 // of the next event to read
	file   *spool // that was read last; guarded by j.mu
	offset int64  // of that event in the file, -1: not known
	passed uint64 // bytes of output before it, at least
	wake   chan struct{}
	// patient ones are woken by the Exit only. Guarded by j.mu.
	patient bool
}

// subscribe follows the journal from an event on. False: the journal has been
// released, or has no such event and never will.
func (j *journal) subscribe(from uint64) (*subscriber, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.released || from > j.nextLocked() {
		return nil, false
	}
	s := &subscriber{j: j, seq: from, offset: -1, wake: make(chan struct{}, 1)}
	s.passed = j.passedLocked(from)
	j.subs[s] = struct{}{}
	return s, true
}

func (s *subscriber) close() {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	delete(s.j.subs, s)
	s.j.closeLocked()
}

func (s *subscriber) setPatient(on bool) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.patient = on
}

// next returns the events that are there, or none. end says that no more will
// come after these.
func (s *subscriber) next() (events []*agentv1.Event, end bool, err error) {
	j := s.j
	j.mu.Lock()
	base := j.rolled.base
	head := base + uint64(len(j.head))
	older := head + j.rolled.inOlder
	spooled := older + j.inSpool
	switch {
	case s.seq < base:
		events = []*agentv1.Event{s.missedLocked()}
	case s.seq < head:
		events = j.head[s.seq-base:]
	case s.seq < spooled:
		file, size := j.spool, j.size
		if s.seq < older {
			file, size = j.rolled.older, j.rolled.older.size
		}
		if s.file != file {
			s.file, s.offset = file, -1
			j.closeStaleLocked()
		}
		if s.offset < 0 {
			m := file.seek(s.seq)
			s.offset = m.offset
		}
		j.mu.Unlock()
		return s.readSpool(file, size)
	case s.seq < spooled+uint64(len(j.tail)):
		events = j.tail[s.seq-spooled:]
	}
	s.seq += uint64(len(events))
	s.passed += payloads(events)
	end = j.exit != nil && s.seq == j.nextLocked()
	j.mu.Unlock()
	return events, end, nil
}

func (s *subscriber) readSpool(file *spool, size int64) ([]*agentv1.Event, bool, error) {
	events, offset, err := file.read(s.offset, size, readBatch)
	if err != nil {
		return nil, false, err
	}
	s.offset = offset
	for len(events) > 0 && events[0].Seq < s.seq {
		events = events[1:] // the mark was before the wanted event
	}
	if len(events) == 0 {
		return s.readSpool(file, size)
	}
	s.seq = events[len(events)-1].Seq + 1
	s.passed += payloads(events)
	return events, false, nil
}

// follow sends events until the run's end, an error of send, or the context's
// end. After quiet without an event it sends a KeepAlive. The events of the
// first moments leave in one batch, so that a short run is one write.
func (s *subscriber) follow(ctx context.Context, quiet time.Duration, batch *batchWriter, send func(*agentv1.Event) error) error {
	if batch != nil {
		if err := s.awaitEnd(ctx, batchWindow); err != nil {
			return err
		}
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		more, err := s.sendAll(batch, send)
		if err != nil || !more {
			return err
		}
		timer.Reset(quiet)
		select {
		case <-s.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			if err := send(&agentv1.Event{Kind: &agentv1.Event_KeepAlive{KeepAlive: &agentv1.KeepAlive{}}}); err != nil {
				return err
			}
		}
	}
}

// awaitEnd waits for the run's end, at most for the given time.
func (s *subscriber) awaitEnd(ctx context.Context, most time.Duration) error {
	s.setPatient(true)
	defer s.setPatient(false)
	timer := time.NewTimer(most)
	defer timer.Stop()
	for !s.j.ended() {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return nil
		}
	}
	return nil
}

// sendAll sends the events that are there, in one batch, and says whether more
// may come.
func (s *subscriber) sendAll(batch *batchWriter, send func(*agentv1.Event) error) (more bool, err error) {
	batch.hold()
	for {
		events, end, err := s.next()
		if err != nil {
			return false, err
		}
		for _, e := range events {
			if err := send(e); err != nil {
				return false, err
			}
		}
		if end {
			return false, nil // whoever called us ends the stream, which flushes it
		}
		if len(events) == 0 {
			batch.release()
			return true, nil
		}
	}
}

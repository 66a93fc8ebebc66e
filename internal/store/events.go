package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// Event is something that happened to a sandbox.
type Event struct {
	ID      int64
	Time    time.Time
	Project string
	Sandbox sandbox.ID
	Type    string // "running", "failed", "unresponsive", …
	Reason  string // one sentence
	Cause   string // one word: what brought it about
	Data    map[string]string
}

func insertEvent(ctx context.Context, q *storedb.Queries, now time.Time, sb sandbox.Sandbox, e Event) error {
	if sb.Origin == sandbox.OriginRestore {
		return nil // nobody knows the record; what happens is told of the sandbox that goes back
	}
	if e.Data == nil {
		e.Data = map[string]string{}
	}
	e.Data["state"] = string(sb.State)
	data, err := json.Marshal(e.Data)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	err = q.InsertEvent(ctx, storedb.InsertEventParams{
		Time: now.UnixMicro(), Project: sb.Project, Sandbox: string(sb.ID), Type: e.Type, Reason: e.Reason, Cause: e.Cause, Data: string(data),
	})
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

// Events returns at most limit events of a project, or of one of its sandboxes when id is
// not empty, oldest first, from behind the event after.
func (s *Store) Events(ctx context.Context, project string, id sandbox.ID, after int64, limit int) ([]Event, error) {
	var rows []storedb.Event
	var err error
	if id == "" {
		rows, err = s.read.ListEventsOfProject(ctx, storedb.ListEventsOfProjectParams{Project: project, AfterID: after, MaxRows: int64(limit)})
	} else {
		rows, err = s.read.ListEvents(ctx, storedb.ListEventsParams{Project: project, Sandbox: string(id), AfterID: after, MaxRows: int64(limit)})
	}
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	events := make([]Event, 0, len(rows))
	for _, r := range rows {
		e := Event{
			ID: r.ID, Time: time.UnixMicro(r.Time).UTC(), Project: r.Project, Sandbox: sandbox.ID(r.Sandbox),
			Type: r.Type, Reason: r.Reason, Cause: r.Cause,
		}
		if err := json.Unmarshal([]byte(r.Data), &e.Data); err != nil {
			return nil, fmt.Errorf("read event %d: %w", r.ID, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// OldestEvent returns the id of the oldest event that is kept, of any project, or 0.
func (s *Store) OldestEvent(ctx context.Context) (int64, error) {
	id, err := s.read.OldestEvent(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the oldest event: %w", err)
	}
	return id, nil
}

// EventBefore returns the id of the last event before a time, of any project, or 0.
func (s *Store) EventBefore(ctx context.Context, t time.Time) (int64, error) {
	id, err := s.read.LastEventBefore(ctx, t.UnixMicro())
	if err != nil {
		return 0, fmt.Errorf("find an event by its time: %w", err)
	}
	return id, nil
}

// AddEvent enters something that happened to a sandbox beside its changes of state.
func (s *Store) AddEvent(ctx context.Context, sb sandbox.Sandbox, e Event) error {
	return s.grow(ctx, func(q *storedb.Queries) error { return insertEvent(ctx, q, s.now(), sb, e) })
}

// Changed returns a channel that is closed when something is written next. Ask
// for it before looking, and nothing is missed.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Store) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Intent is an operation that has begun and not ended.
type Intent struct {
	Sandbox   sandbox.ID
	Operation string
	StartedAt time.Time
}

// Intents returns all operations that have not ended, oldest first.
func (s *Store) Intents(ctx context.Context) ([]Intent, error) {
	rows, err := s.read.ListIntents(ctx)
	if err != nil {
		return nil, fmt.Errorf("list intents: %w", err)
	}
	intents := make([]Intent, 0, len(rows))
	for _, r := range rows {
		intents = append(intents, Intent{sandbox.ID(r.Sandbox), r.Operation, time.UnixMicro(r.StartedAt).UTC()})
	}
	return intents, nil
}

// IntentOf returns the operation on a sandbox that has begun and not ended, "" for none.
func (s *Store) IntentOf(ctx context.Context, id sandbox.ID) (string, error) {
	operation, err := s.read.GetIntent(ctx, string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up an intent: %w", err)
	}
	return operation, nil
}

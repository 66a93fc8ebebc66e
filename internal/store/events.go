package store

import (
	"context"
	"encoding/json"
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
	Reason  string // one sentence, where there is one
	Data    map[string]string
}

func insertEvent(ctx context.Context, q *storedb.Queries, now time.Time, sb sandbox.Sandbox, e Event) error {
	if e.Data == nil {
		e.Data = map[string]string{}
	}
	data, err := json.Marshal(e.Data)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	err = q.InsertEvent(ctx, storedb.InsertEventParams{
		Time: now.UnixMicro(), Project: sb.Project, Sandbox: string(sb.ID), Type: e.Type, Reason: e.Reason, Data: string(data),
	})
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

// Events returns at most limit events of a sandbox, oldest first, from behind the event after.
func (s *Store) Events(ctx context.Context, project string, id sandbox.ID, after int64, limit int) ([]Event, error) {
	rows, err := s.read.ListEvents(ctx, storedb.ListEventsParams{Project: project, Sandbox: string(id), AfterID: after, MaxRows: int64(limit)})
	if err != nil {
		return nil, fmt.Errorf("list events of sandbox %s: %w", id, err)
	}
	events := make([]Event, 0, len(rows))
	for _, r := range rows {
		e := Event{ID: r.ID, Time: time.UnixMicro(r.Time).UTC(), Project: r.Project, Sandbox: sandbox.ID(r.Sandbox), Type: r.Type, Reason: r.Reason}
		if err := json.Unmarshal([]byte(r.Data), &e.Data); err != nil {
			return nil, fmt.Errorf("read event %d: %w", r.ID, err)
		}
		events = append(events, e)
	}
	return events, nil
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

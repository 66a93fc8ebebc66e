package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// Answer is what a call with an idempotency key was answered, sealed by its caller.
type Answer struct {
	Request [32]byte // SHA-256 of what was asked
	Sealed  []byte
}

// Answer returns the answer that is kept for a key, or nil.
func (s *Store) Answer(ctx context.Context, scope string, key [32]byte, since time.Time) (*Answer, error) {
	row, err := s.read.GetAnswer(ctx, storedb.GetAnswerParams{Scope: scope, Key: key[:], Since: since.UnixMicro()})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up an answer: %w", err)
	}
	a := &Answer{Sealed: row.Answer}
	if len(row.Request) != len(a.Request) {
		return nil, fmt.Errorf("an answer of %s has a request of %d bytes", scope, len(row.Request))
	}
	copy(a.Request[:], row.Request)
	return a, nil
}

// PutAnswer keeps an answer.
func (s *Store) PutAnswer(ctx context.Context, scope string, key [32]byte, a Answer) error {
	return s.grow(ctx, func(q *storedb.Queries) error {
		err := q.PutAnswer(ctx, storedb.PutAnswerParams{
			Scope: scope, Key: key[:], Request: a.Request[:], Answer: a.Sealed, CreatedAt: s.now().UnixMicro(),
		})
		if err != nil {
			return fmt.Errorf("keep an answer: %w", err)
		}
		return nil
	})
}

// OfIdempotency returns the live sandbox of a project that was made with a tag, or a NotFound.
func (s *Store) OfIdempotency(ctx context.Context, project, tag string, since time.Time) (sandbox.Sandbox, error) {
	return one(s.read.SandboxOfIdempotency(ctx, storedb.SandboxOfIdempotencyParams{
		Project: project, Idempotency: tag, Since: since.UnixMicro(),
	}))
}

// AllOfIdempotency returns the live sandboxes of a project that were made together with a
// tag, oldest first.
func (s *Store) AllOfIdempotency(ctx context.Context, project, tag string, since time.Time) ([]sandbox.Sandbox, error) {
	rows, err := s.read.SandboxesOfIdempotency(ctx, storedb.SandboxesOfIdempotencyParams{
		Project: project, Idempotency: tag, Since: since.UnixMicro(),
	})
	if err != nil {
		return nil, fmt.Errorf("look up the sandboxes of a call: %w", err)
	}
	return fromRows(rows)
}

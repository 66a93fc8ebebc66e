package store

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"ramet.dev/ramet/internal/store/storedb"
)

// maxStatements bounds a cache of statements. The generated queries are fewer.
const maxStatements = 256

// statements keeps the queries of a database prepared: parsing one takes SQLite
// longer than running it, and some run at every call.
type statements struct {
	db *sql.DB

	mu    sync.RWMutex
	known map[string]*sql.Stmt // guarded by mu
}

var _ storedb.DBTX = (*statements)(nil)

func newStatements(db *sql.DB) *statements {
	return &statements{db: db, known: make(map[string]*sql.Stmt)}
}

// get returns a statement that is prepared already, or nil.
func (s *statements) get(query string) *sql.Stmt {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known[query]
}

// learn prepares a query, unless that was done already. It returns nil when there
// is no room for another one.
func (s *statements) learn(ctx context.Context, query string) (*sql.Stmt, error) {
	if st := s.get(query); st != nil {
		return st, nil
	}
	st, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.known[query]; other != nil || len(s.known) >= maxStatements {
		return other, st.Close()
	}
	s.known[query] = st
	return st, nil
}

// close frees all statements. The database is closed after it.
func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, st := range s.known {
		errs = append(errs, st.Close())
	}
	clear(s.known)
	return errors.Join(errs...)
}

// ExecContext implements storedb.DBTX.
func (s *statements) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if st, err := s.learn(ctx, query); err == nil && st != nil {
		return st.ExecContext(ctx, args...)
	}
	return s.db.ExecContext(ctx, query, args...) // says what is wrong with it
}

// QueryContext implements storedb.DBTX.
func (s *statements) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if st, err := s.learn(ctx, query); err == nil && st != nil {
		return st.QueryContext(ctx, args...)
	}
	return s.db.QueryContext(ctx, query, args...)
}

// QueryRowContext implements storedb.DBTX.
func (s *statements) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if st, err := s.learn(ctx, query); err == nil && st != nil {
		return st.QueryRowContext(ctx, args...)
	}
	return s.db.QueryRowContext(ctx, query, args...)
}

// PrepareContext implements storedb.DBTX.
func (s *statements) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return s.db.PrepareContext(ctx, query)
}

// inTx is a transaction that uses the statements of its database. A query that is
// not prepared yet runs as it is and is noted: the database's one connection, on
// which to prepare it, is the transaction's until that has ended.
type inTx struct {
	*sql.Tx
	prepared *statements
	unknown  []string
}

func (t *inTx) get(ctx context.Context, query string) *sql.Stmt {
	if st := t.prepared.get(query); st != nil {
		return t.StmtContext(ctx, st)
	}
	t.unknown = append(t.unknown, query)
	return nil
}

func (t *inTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if st := t.get(ctx, query); st != nil {
		return st.ExecContext(ctx, args...)
	}
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t *inTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if st := t.get(ctx, query); st != nil {
		return st.QueryContext(ctx, args...)
	}
	return t.Tx.QueryContext(ctx, query, args...)
}

func (t *inTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if st := t.get(ctx, query); st != nil {
		return st.QueryRowContext(ctx, args...)
	}
	return t.Tx.QueryRowContext(ctx, query, args...)
}

// remember prepares what the transaction has noted. It has ended.
func (t *inTx) remember(ctx context.Context) {
	for _, query := range t.unknown {
		if _, err := t.prepared.learn(ctx, query); err != nil {
			return // the next transaction tries again, and works without
		}
	}
}

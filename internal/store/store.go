// Package store keeps the records of a node in SQLite: sandboxes, keys, the
// intents of operations under way, and events. It owns the rules that must
// hold over several records at once: a state changes only from the state that the
// caller saw, along the table in package sandbox, in one transaction with its
// intent and its event; and a record is read only by its project.
//
// It starts nothing and frees nothing on the host. Start reading at Transition.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"ramet.dev/ramet/internal/store/storedb"
)

//go:embed migrations/*.sql
var migrations embed.FS

// readers is how many reads run at the same time.
const readers = 8

// Store is the records of one node. It is safe for concurrent use.
type Store struct {
	// SQLite has one writer; a pool of one connection queues writers here, in
	// order, instead of letting them race for the file's lock.
	writer *sql.DB
	reader *sql.DB
	read   *storedb.Queries

	reads, writes *statements
	now           func() time.Time

	mu      sync.Mutex
	changed chan struct{} // guarded by mu

	ballast atomic.Pointer[ballast] // nil: none is kept
}

// Open opens the database file at path, making or upgrading it as needed.
func Open(ctx context.Context, path string) (*Store, error) {
	if err := keepPrivate(path); err != nil {
		return nil, err
	}
	// FULL: a commit that was acknowledged survives a power cut.
	pragmas := url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)",
	}}
	pragmas.Set("_txlock", "immediate")
	writer, err := open(path, pragmas, 1)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, writer); err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	pragmas = url.Values{"_pragma": {"busy_timeout(5000)", "query_only(ON)"}}
	reader, err := open(path, pragmas, readers)
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	reads := newStatements(reader)
	return &Store{
		writer: writer, reader: reader, read: storedb.New(reads), reads: reads, writes: newStatements(writer),
		now: now, changed: make(chan struct{}),
	}, nil
}

// keepPrivate makes the database a file that only this user can read: machines run
// under uids of their own and pass through its directory, and the records hold
// environments, which may be secret. SQLite gives the files that it puts beside it
// the same mode; those that an earlier process left are changed too.
func keepPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Close()); err != nil {
		return fmt.Errorf("make database %s private: %w", path, err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make database %s private: %w", path, err)
		}
	}
	return nil
}

func open(path string, params url.Values, conns int) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: params.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("open the embedded migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, dir)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("bring the database up to date: %w", err)
	}
	return nil
}

// Close closes the database. Everything that was acknowledged is on disk.
func (s *Store) Close() error {
	return errors.Join(s.reads.close(), s.reader.Close(), s.writes.close(), s.writer.Close())
}

// grow is tx for what makes something new: while the disk is full it is refused.
func (s *Store) grow(ctx context.Context, f func(*storedb.Queries) error) error {
	if s.Full() {
		return errDiskFull(nil)
	}
	err := s.once(ctx, f)
	if !s.isFull(err) {
		return err
	}
	return errors.Join(errDiskFull(err), s.DiskFull())
}

// tx runs f in one write transaction, which commits when f returns nil. On a full disk
// it removes the ballast and runs f again.
func (s *Store) tx(ctx context.Context, f func(*storedb.Queries) error) error {
	err := s.once(ctx, f)
	if !s.isFull(err) {
		return err
	}
	if ferr := s.DiskFull(); ferr != nil {
		return errors.Join(errDiskFull(err), ferr)
	}
	if err = s.once(ctx, f); s.isFull(err) {
		return errDiskFull(err)
	}
	return err
}

func (s *Store) once(ctx context.Context, f func(*storedb.Queries) error) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	t := &inTx{Tx: tx, prepared: s.writes}
	if err := f(storedb.New(t)); err != nil {
		// After some errors SQLite has rolled back by itself; then this one says so.
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		_ = tx.Rollback()
		return fmt.Errorf("commit: %w", err)
	}
	s.announce()
	t.remember(context.WithoutCancel(ctx)) // it is not the caller's any more
	return nil
}

// maxEvents bounds how many events are kept, whatever their age.
const maxEvents = 1_000_000

// Purge forgets stopped and failed sandboxes that have not changed since ended,
// and events and answers older than events and answers.
func (s *Store) Purge(ctx context.Context, ended, events, answers time.Time) error {
	return s.tx(ctx, func(q *storedb.Queries) error {
		if _, err := q.DeleteAnswersBefore(ctx, answers.UnixMicro()); err != nil {
			return fmt.Errorf("forget old answers: %w", err)
		}
		if _, err := q.DeleteEndedBefore(ctx, ended.UnixMicro()); err != nil {
			return fmt.Errorf("forget sandboxes that ended: %w", err)
		}
		if _, err := q.DeleteEventsBefore(ctx, events.UnixMicro()); err != nil {
			return fmt.Errorf("forget old events: %w", err)
		}
		if _, err := q.DeleteEventsBeyond(ctx, maxEvents); err != nil {
			return fmt.Errorf("forget too many events: %w", err)
		}
		return nil
	})
}

// now has the precision of the records, so that what a change returns is what is read later.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }

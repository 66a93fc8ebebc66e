package store

import (
	"path/filepath"
	"sync"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

func preparedStore(t testing.TB) (*Store, sandbox.Sandbox) {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "ramet.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	sb := sandbox.Sandbox{ID: sandbox.NewID(), Project: "p", Node: "n", Template: "default", Instance: sandbox.NewInstanceID(), Shape: sandbox.DefaultShape()}
	if sb, err = s.CreateRunning(t.Context(), sb, Event{}, Event{}, Limits{}); err != nil {
		t.Fatal(err)
	}
	return s, sb
}

func (s *statements) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.known)
}

// What runs at every call is parsed once, by readers at the same time and in
// transactions, and finds what was written in between.
func TestQueriesArePreparedOnce(t *testing.T) {
	s, sb := preparedStore(t)
	first := s.writes.len()
	if first == 0 {
		t.Error("a transaction has left nothing prepared")
	}
	for _, state := range []sandbox.State{sandbox.Stopping, sandbox.Stopped} {
		from := sb.State
		var err error
		if sb, err = s.Transition(t.Context(), sb.ID, from, state, Change{}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 2 * readers {
			wg.Go(func() {
				if got, err := s.Get(t.Context(), "p", sb.ID); err != nil || got.State != state {
					t.Errorf("%s %v, want %s", got.State, err, state)
				}
			})
		}
		wg.Wait()
	}
	if got := s.reads.len(); got != 1 {
		t.Errorf("%d queries are prepared for one that was run", got)
	}
	if _, err := s.Get(t.Context(), "p", sandbox.NewID()); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a sandbox that is not there: %v", err)
	}
}

// A statement that is kept must not keep its transaction: the log could never be
// folded back into the database.
func TestPreparedQueriesHoldNoTransaction(t *testing.T) {
	s, sb := preparedStore(t)
	for range readers {
		if _, err := s.Get(t.Context(), "p", sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Transition(t.Context(), sb.ID, sandbox.Running, sandbox.Stopping, Change{}); err != nil {
		t.Fatal(err)
	}
	var busy, log, folded int
	if err := s.writer.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &log, &folded); err != nil {
		t.Fatal(err)
	}
	if busy != 0 || log != 0 {
		t.Errorf("the checkpoint was blocked: busy %d, %d pages left", busy, log)
	}
}

func TestOnlySoManyStatementsAreKept(t *testing.T) {
	s, _ := preparedStore(t)
	p := newStatements(s.reader)
	for n := range maxStatements + 10 {
		var got int
		if err := p.QueryRowContext(t.Context(), "SELECT ? + "+string(rune('0'+n%10))+" -- "+string(rune('a'+n/10)), 1).Scan(&got); err != nil || got != 1+n%10 {
			t.Fatalf("%d %v", got, err)
		}
	}
	if p.len() != maxStatements {
		t.Errorf("%d statements are kept", p.len())
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if err := p.QueryRowContext(t.Context(), "SELECT nothing").Scan(); err == nil {
		t.Error("a query that is wrong was prepared")
	}
}

func BenchmarkGet(b *testing.B) {
	s, sb := preparedStore(b)
	for b.Loop() {
		if _, err := s.Get(b.Context(), "p", sb.ID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateRunning(b *testing.B) {
	s, sb := preparedStore(b)
	for b.Loop() {
		sb.ID, sb.Instance = sandbox.NewID(), sandbox.NewInstanceID()
		if _, err := s.CreateRunning(b.Context(), sb, Event{}, Event{}, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

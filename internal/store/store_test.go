package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
)

func opened(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "with space?#.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func sample() sandbox.Sandbox {
	return sandbox.Sandbox{
		ID: sandbox.NewID(), Project: "p", Region: "r", Node: "n", Template: "default", Instance: sandbox.NewInstanceID(),
		Shape: sandbox.Shape{VCPUs: 2, MemoryMB: 1024, DiskMB: 4096}, Egress: true,
		Env: map[string]string{"A": "1\n"}, Metadata: map[string]string{"k": "v"},
		EgressPolicy: sandbox.EgressPolicy{Allow: []string{"a.test"}, Deny: []string{"*.b.test:443"}, Order: sandbox.EgressAllowFirst},
	}
}

func TestPragmas(t *testing.T) {
	s := opened(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000"} {
		var got string
		if err := s.writer.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v", pragma, got, err)
		}
	}
	if _, err := s.reader.Exec("DELETE FROM keys"); err == nil {
		t.Error("a reader can write")
	}
}

func TestRecordSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ramet.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Create(t.Context(), sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Get(t.Context(), "p", made.ID)
	if err != nil || got.Env["A"] != "1\n" || got.Shape != made.Shape || !got.CreatedAt.Equal(made.CreatedAt) || !got.Egress || !got.EgressPolicy.Equal(sample().EgressPolicy) || got.State != sandbox.Creating {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := s.Get(t.Context(), "other", made.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project: %v", err)
	}
	intents, err := s.Intents(t.Context())
	if err != nil || len(intents) != 1 || intents[0].Operation != "create" {
		t.Errorf("%v %v", intents, err)
	}
}

func TestDatabaseIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ramet.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil { // as older versions made it
		t.Fatal(err)
	}
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), sample(), "create", Limits{}); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if st, err := os.Stat(path + suffix); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("ramet.db%s: %v %v", suffix, st.Mode(), err)
		}
	}
}

// states are all of them.
var states = []sandbox.State{
	sandbox.Creating, sandbox.Running, sandbox.Hibernating, sandbox.Hibernated,
	sandbox.Waking, sandbox.Stopping, sandbox.Stopped, sandbox.Failed,
}

// TestTransitionsFollowTheTable throws random transitions at records and compares
// with a model: a change happens exactly when the record is in the state it
// starts from and the table allows it; else nothing of it happens.
func TestTransitionsFollowTheTable(t *testing.T) {
	s := opened(t)
	rapid.Check(t, func(r *rapid.T) {
		ctx := t.Context()
		made, err := s.Create(ctx, sample(), "create", Limits{})
		if err != nil {
			r.Fatal(err)
		}
		state, reason, intent, events := sandbox.Creating, "", "create", 1
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			from, to := rapid.SampledFrom(states).Draw(r, "from"), rapid.SampledFrom(states).Draw(r, "to")
			word := rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "reason")
			begin := rapid.SampledFrom([]string{"", "x"}).Draw(r, "begin")
			end := rapid.Bool().Draw(r, "end")
			got, err := s.Transition(ctx, made.ID, from, to, Change{
				Apply: func(sb *sandbox.Sandbox) { sb.FailReason = word }, Begin: begin, End: end,
			})
			allowed := from == state && from.CanBecome(to)
			if (err == nil) != allowed {
				r.Fatalf("in %s, from %s to %s: %v", state, from, to, err)
			}
			if err != nil {
				if from.CanBecome(to) && sandbox.KindOf(err) != sandbox.Conflict {
					r.Fatalf("a lost race is no conflict: %v", err)
				}
			} else {
				state, reason = to, word
				events++
				switch {
				case begin != "":
					intent = begin
				case end:
					intent = ""
				}
				if got.State != to {
					r.Fatalf("returned %s", got.State)
				}
			}
			check(r, s, made.ID, state, reason, intent, events)
		}
	})
}

func check(r *rapid.T, s *Store, id sandbox.ID, state sandbox.State, reason, intent string, events int) {
	ctx := context.Background()
	sb, err := s.Get(ctx, "p", id)
	if err != nil || sb.State != state || sb.FailReason != reason {
		r.Fatalf("record %s %q, want %s %q, %v", sb.State, sb.FailReason, state, reason, err)
	}
	list, err := s.Events(ctx, "p", id, 0, 100)
	if err != nil || len(list) != events {
		r.Fatalf("%d events, want %d, %v", len(list), events, err)
	}
	intents, err := s.Intents(ctx)
	if err != nil {
		r.Fatal(err)
	}
	i := slices.IndexFunc(intents, func(i Intent) bool { return i.Sandbox == id })
	if (i >= 0) != (intent != "") || i >= 0 && intents[i].Operation != intent {
		r.Fatalf("intents %v, want %q", intents, intent)
	}
}

func TestOneOfManyTransitionsWins(t *testing.T) {
	s := opened(t)
	made, err := s.Create(t.Context(), sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 20 {
		wg.Go(func() {
			_, err := s.Transition(t.Context(), made.ID, sandbox.Creating, sandbox.Running, Change{End: true})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case sandbox.KindOf(err) != sandbox.Conflict:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

func TestUnresponsiveOnlyWhileRunning(t *testing.T) {
	s, ctx := opened(t), t.Context()
	sb, err := s.Create(ctx, sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	marked := func() bool {
		got, err := s.Get(ctx, "p", sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		return !got.UnresponsiveSince.IsZero()
	}
	if err := s.MarkUnresponsive(ctx, sb, "x"); err != nil || marked() {
		t.Errorf("a creating one: %v", err)
	}
	if _, err := s.Transition(ctx, sb.ID, sandbox.Creating, sandbox.Running, Change{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.MarkUnresponsive(ctx, sb, "x"); err != nil || !marked() {
			t.Errorf("a running one: %v", err)
		}
	}
	if _, err := s.Transition(ctx, sb.ID, sandbox.Running, sandbox.Failed, Change{}); err != nil || marked() {
		t.Errorf("a failed one: %v", err)
	}
	events, err := s.Events(ctx, "p", sb.ID, 0, 10)
	if err != nil || len(events) != 4 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestPurge(t *testing.T) {
	s, ctx := opened(t), t.Context()
	now := time.Now()
	s.now = func() time.Time { return now }
	stopped, err := s.Create(ctx, sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	live, err := s.Create(ctx, sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ from, to sandbox.State }{{sandbox.Creating, sandbox.Stopping}, {sandbox.Stopping, sandbox.Stopped}} {
		if _, err := s.Transition(ctx, stopped.ID, step.from, step.to, Change{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Purge(ctx, now.Add(-time.Hour), now.Add(-time.Hour), now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "p", stopped.ID); err != nil {
		t.Errorf("too early: %v", err)
	}
	if err := s.Purge(ctx, now.Add(time.Hour), now.Add(time.Hour), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "p", stopped.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("still there: %v", err)
	}
	if _, err := s.Get(ctx, "p", live.ID); err != nil {
		t.Errorf("a live one was forgotten: %v", err)
	}
	if events, err := s.Events(ctx, "p", live.ID, 0, 10); err != nil || len(events) != 0 {
		t.Errorf("%v %v", events, err)
	}
}

// Between any two pages some are made, and some end.
func TestListPagesAreStableWhileOthersComeAndGo(t *testing.T) {
	s, ctx := opened(t), t.Context()
	add := func(change func(*sandbox.Sandbox)) sandbox.ID {
		t.Helper()
		sb := sample()
		if change != nil {
			change(&sb)
		}
		sb, err := s.Create(ctx, sb, "create", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return sb.ID
	}
	stays := func(sb *sandbox.Sandbox) { sb.Metadata = map[string]string{"team": "a", "tier": "1", "n": "x"} }
	want := map[sandbox.ID]bool{}
	var brief []sandbox.ID
	for range 12 {
		want[add(stays)] = true
		brief = append(brief, add(stays))
		add(func(sb *sandbox.Sandbox) { sb.Metadata = map[string]string{"team": "a", "tier": "2"} })
		add(func(sb *sandbox.Sandbox) { stays(sb); sb.Template = "other" })
	}
	o := ListOptions{Limit: 3, Template: sample().Template, Metadata: map[string]string{"team": "a", "tier": "1"}}
	seen := map[sandbox.ID]int{}
	for more := true; more; {
		var page []sandbox.Sandbox
		var err error
		if page, more, err = s.List(ctx, "p", o); err != nil {
			t.Fatal(err)
		}
		for _, sb := range page {
			seen[sb.ID]++
			o.After = &Position{sb.CreatedAt, sb.ID}
		}
		add(stays)
		if len(brief) > 1 { // one of each end: seen already, and to come
			for _, id := range []sandbox.ID{brief[0], brief[len(brief)-1]} {
				if _, err := s.Transition(ctx, id, sandbox.Creating, sandbox.Stopping, Change{}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Transition(ctx, id, sandbox.Stopping, sandbox.Stopped, Change{End: true}); err != nil {
					t.Fatal(err)
				}
			}
			brief = brief[1 : len(brief)-1]
		}
	}
	for id := range want {
		if seen[id] != 1 {
			t.Errorf("%s is on %d pages", id, seen[id])
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is on %d pages", id, n)
		}
	}
	if len(seen) > 24 {
		t.Errorf("%d were listed: more than there were at the first page", len(seen))
	}
}

func TestListPagesWithoutHoles(t *testing.T) {
	s, ctx := opened(t), t.Context()
	now := time.Now()
	s.now = func() time.Time { return now } // all at the same time: only the id orders
	want := map[sandbox.ID]bool{}
	for range 25 {
		sb, err := s.Create(ctx, sample(), "create", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		want[sb.ID] = true
	}
	var after *Position
	for pages := 0; ; pages++ {
		page, more, err := s.List(ctx, "p", ListOptions{Limit: 10, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page {
			if !want[sb.ID] {
				t.Errorf("%s twice or not ours", sb.ID)
			}
			delete(want, sb.ID)
			after = &Position{sb.CreatedAt, sb.ID}
		}
		if !more {
			if pages != 2 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
	}
	if len(want) != 0 {
		t.Errorf("%d are missing", len(want))
	}
}

func TestKeysByHash(t *testing.T) {
	s, ctx := opened(t), t.Context()
	hash := sha256.Sum256([]byte("secret"))
	k, err := s.AddKey(ctx, sandbox.Key{ID: "key_1", Name: "n", Project: "p", Hash: hash, Prefix: "se"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.AddKey(ctx, sandbox.Key{ID: "key_2", Name: "m", Project: "p", Hash: hash})
	if err != nil || again != k {
		t.Errorf("%+v %v", again, err)
	}
	got, err := s.KeyByHash(ctx, hash)
	if err != nil || got != k {
		t.Errorf("%+v %v", got, err)
	}
	if err := s.DeleteKey(ctx, "key_9"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another project: %v", err)
	}
	if err := s.DeleteKey(ctx, k.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.KeyByHash(ctx, hash); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("after its end: %v", err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = LockFile(t.Context(), path)
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != "data_dir_in_use" {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = LockFile(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) < 2 {
		t.Errorf("%q %v", b, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLockOfAKilledServerIsWaitedFor has a child of a server hold the lock a moment longer.
func TestLockOfAKilledServerIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	child, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	if err := unix.Flock(int(child.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("true")
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(child, server.Process.Pid); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := LockFile(impatient, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while the child has it: %v", err)
	}
	freed := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { freed <- child.Close() })
	l, err := LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-freed, l.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheServersUserCanReadTheRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ramet.db")
	// What an earlier version left.
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.WriteFile(path+suffix, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"left by an earlier version", "opened again", "new"} {
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), sample(), "create", Limits{}); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %s has mode %v, %v", what, suffix, info.Mode(), err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if what == "opened again" {
			path = filepath.Join(t.TempDir(), "new.db")
		}
	}
}

func TestFullDiskIsUnavailableAndPasses(t *testing.T) {
	s := opened(t)
	var pages int
	if err := s.writer.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	// SQLite reports the same error for its own bound as for the disk's.
	if _, err := s.writer.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
		t.Fatal(err)
	}
	big := sample()
	big.Env["BIG"] = strings.Repeat("x", 1<<20)
	_, err := s.Create(t.Context(), big, "create", Limits{})
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Kind != sandbox.Unavailable || e.Code != "server_disk_full" || e.RetryAfter <= 0 {
		t.Errorf("%v", err)
	}
	if _, err := s.Get(t.Context(), "p", big.ID); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("half a create: %v", err)
	}
	if _, err := s.writer.Exec("PRAGMA max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), big, "create", Limits{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestPurgeForgetsWhatEnded(t *testing.T) {
	s := opened(t)
	ctx := t.Context()
	made := map[sandbox.State]sandbox.ID{}
	for state, path := range map[sandbox.State][]sandbox.State{
		sandbox.Running: {sandbox.Running},
		sandbox.Failed:  {sandbox.Running, sandbox.Failed},
		sandbox.Stopped: {sandbox.Stopping, sandbox.Stopped},
	} {
		sb, err := s.Create(ctx, sample(), "create", Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range path {
			if sb, err = s.Transition(ctx, sb.ID, sb.State, next, Change{End: true}); err != nil {
				t.Fatal(err)
			}
		}
		made[state] = sb.ID
	}
	for _, c := range []struct {
		before time.Time
		left   int
	}{{time.Now().Add(-time.Hour), 3}, {time.Now().Add(time.Hour), 1}} {
		if err := s.Purge(ctx, c.before, c.before, c.before); err != nil {
			t.Fatal(err)
		}
		list, _, err := s.List(ctx, "p", ListOptions{Limit: 10, State: "any"})
		if err != nil || len(list) != c.left || c.left == 1 && list[0].ID != made[sandbox.Running] {
			t.Errorf("%+v %v, want %d", list, err, c.left)
		}
	}
}

// TestUpdateKeepsTheEgressPolicy: what a change does not touch stays, and what it does is in the record.
func TestUpdateKeepsTheEgressPolicy(t *testing.T) {
	s := opened(t)
	made, err := s.Create(t.Context(), sample(), "create", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	running, err := s.Transition(t.Context(), made.ID, sandbox.Creating, sandbox.Running, Change{End: true})
	if err != nil || !running.EgressPolicy.Equal(sample().EgressPolicy) {
		t.Fatalf("%+v %v", running.EgressPolicy, err)
	}
	set := sandbox.EgressPolicy{Deny: []string{"10.0.0.0/8"}}
	if _, err := s.Update(t.Context(), "p", made.ID, func(sb *sandbox.Sandbox) error { sb.EgressPolicy = set; return nil }, Event{Type: "x"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "p", made.ID); err != nil || !got.EgressPolicy.Equal(set) {
		t.Errorf("%+v %v", got.EgressPolicy, err)
	}
}

package exec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func testJournals(t *testing.T, dir string, memory, file int64) *journalConfig {
	t.Helper()
	return &journalConfig{dir: dir, memory: memory, file: file, ram: budget{limit: 1 << 20}, disk: budget{limit: 1 << 30}}
}

func out(s string) *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: []byte(s)}}
}

func end() *agentv1.Event {
	return &agentv1.Event{Kind: &agentv1.Event_Exit{Exit: &agentv1.Exit{Reason: agentv1.Reason_EXITED}}}
}

// read follows a journal to its end.
func read(t *testing.T, j *journal, from uint64) *transcript {
	t.Helper()
	sub, ok := j.subscribe(from)
	if !ok {
		t.Fatalf("cannot subscribe from %d", from)
	}
	defer sub.close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tr := &transcript{}
	err := sub.follow(ctx, time.Hour, nil, func(e *agentv1.Event) error { tr.add(t, e, from); return nil })
	if err != nil {
		t.Error(err)
	}
	return tr.settle()
}

func TestJournalNothingIsLostBetweenSnapshotAndSubscribe(t *testing.T) {
	j := newJournal(testJournals(t, t.TempDir(), 8<<10, 1<<30))
	const n = 5000
	var readers sync.WaitGroup
	for i := range n {
		if i%500 == 0 {
			readers.Go(func() {
				tr := read(t, j, uint64(i))
				if len(tr.events) != n-i+1 || tr.exit == nil {
					t.Errorf("from %d: %d events", i, len(tr.events))
				}
				for k, e := range tr.events[:len(tr.events)-1] {
					if got := string(e.GetStdout()); got != fmt.Sprint("line ", i+k) {
						t.Errorf("event %d is %q", i+k, got)
						return
					}
				}
			})
		}
		j.append(out(fmt.Sprint("line ", i)))
	}
	j.append(end())
	readers.Wait()
	if tr := read(t, j, n/2); len(tr.events) != n/2+1 {
		t.Errorf("%d events afterwards", len(tr.events))
	}
}

func TestJournalEndsWithExactlyOneExit(t *testing.T) {
	j := newJournal(testJournals(t, "", 1<<20, 0))
	j.append(out("a"))
	j.append(end())
	j.append(out("too late"))
	j.append(end())
	if tr := read(t, j, 0); tr.stdout != "a" || len(tr.events) != 2 {
		t.Errorf("%v", tr.events)
	}
}

func TestJournalOutOfDiskIsAnExplicitTruncation(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	j := newJournal(testJournals(t, missing, 1<<10, 1<<20))
	for range 100 {
		j.append(out("0123456789"))
	}
	j.append(end())
	tr := read(t, j, 0)
	if uint64(len(tr.stdout))+tr.truncated != 1000 || tr.truncated == 0 || tr.exit == nil {
		t.Errorf("%d kept, %d truncated", len(tr.stdout), tr.truncated)
	}
}

func TestJournalGivesBackWhatItHeld(t *testing.T) {
	dir := t.TempDir()
	cfg := testJournals(t, dir, 256<<10, 1<<20)
	for range 20 {
		j := newJournal(cfg)
		for range 400 {
			j.append(out(string(make([]byte, 1000))))
		}
		j.append(end())
		if n := openFiles(t, dir); n != 1 {
			t.Errorf("%d spool files are open, want 1", n)
		}
		sub, _ := j.subscribe(0)
		j.release()
		sub.close()
		if _, ok := j.subscribe(0); ok {
			t.Error("subscribed to a released journal")
		}
	}
	if r, d := cfg.ram.used.Load(), cfg.disk.used.Load(); r != 0 || d != 0 {
		t.Errorf("ram %d, disk %d are still taken", r, d)
	}
	if n := openFiles(t, dir); n != 0 {
		t.Errorf("%d spool files are still open", n)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files left: %v %v", left, err)
	}
}

func TestJournalsShareTheirBudgets(t *testing.T) {
	cfg := testJournals(t, "", 1<<20, 0)
	cfg.ram.limit = 300 << 10
	var kept int
	for range 4 {
		j := newJournal(cfg)
		for range 200 {
			j.append(out(string(make([]byte, 1000))))
		}
		j.append(end())
		kept += len(read(t, j, 0).stdout)
	}
	if kept > 300<<10+4*freeMemory || kept < 200<<10 {
		t.Errorf("kept %d bytes", kept)
	}
}

// openFiles counts the spool files in a directory that this process has open.
func openFiles(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, dir) {
			n++
		}
	}
	return n
}

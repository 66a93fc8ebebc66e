package exec

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// rest reads what a subscriber gets until the journal's end or, before that, to what is there
// now. What is missing must be told where it is.
func rest(t *testing.T, sub *subscriber, toEnd bool) (text string, missing uint64) {
	t.Helper()
	next := sub.seq
	for {
		events, end, err := sub.next()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if n := e.GetTruncated().GetBytes(); n > 0 && e.GetSeq() >= next {
				missing += n
				next = e.GetSeq()
			}
			if e.GetSeq() != next {
				t.Fatalf("event %v, want number %d", e, next)
			}
			next++
			text += string(e.GetStdout())
		}
		if end || len(events) == 0 && !toEnd {
			return text, missing
		}
	}
}

func TestJournalKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	cfg := testJournals(t, dir, 8<<10, 64<<10)
	j := newJournal(cfg)
	var all strings.Builder
	write := func(n int) {
		for range n {
			line := fmt.Sprintf("line %d\n", all.Len())
			all.WriteString(line)
			j.append(out(line))
		}
	}
	slow, _ := j.subscribe(0)
	write(10)
	got, missing := rest(t, slow, false)
	if got != all.String() || missing != 0 {
		t.Fatalf("at first: %q, %d missing", got, missing)
	}
	prompt, _ := j.subscribe(0)
	seen := ""
	for range 200 { // far more than the files hold
		write(100)
		text, missing := rest(t, prompt, false)
		if missing != 0 {
			t.Fatalf("one that keeps up misses %d bytes", missing)
		}
		seen += text
		if n := openFiles(t, dir); n > 3 {
			t.Fatalf("%d files are open", n)
		}
	}
	if seen != all.String() {
		t.Error("one that keeps up has read something else")
	}
	middle, ok := j.subscribe(j.latest() - 5)
	if !ok {
		t.Fatal("cannot subscribe near the end")
	}
	j.append(end())
	whole := all.String()
	for name, sub := range map[string]*subscriber{"slow": slow, "prompt": prompt, "middle": middle} {
		text, missing := rest(t, sub, true)
		if !strings.HasSuffix(whole, text) {
			t.Errorf("%s has read something else", name)
		}
		switch read := uint64(len(text)); {
		case name == "slow" && (read+missing != uint64(len(whole)-len(got)) || read < 16<<10 || missing == 0):
			t.Errorf("slow: %d read, %d missing of %d", read, missing, len(whole)-len(got))
		case name != "slow" && missing != 0:
			t.Errorf("%s misses %d", name, missing)
		}
		sub.close()
	}
	late, _ := j.subscribe(0)
	if text, missing := rest(t, late, true); uint64(len(text))+missing != uint64(len(whole)) || !strings.HasSuffix(whole, text) {
		t.Errorf("from the start: %d read, %d missing of %d", len(text), missing, len(whole))
	}
	j.release()
	late.close()
	if r, d := cfg.ram.used.Load(), cfg.disk.used.Load(); r != 0 || d != 0 {
		t.Errorf("ram %d, disk %d are still taken", r, d)
	}
	if n := openFiles(t, dir); n != 0 {
		t.Errorf("%d files are still open", n)
	}
}

func TestJournalTellsWhatAFullDiskCosts(t *testing.T) {
	cfg := testJournals(t, t.TempDir(), 1<<10, 64<<10)
	cfg.disk.limit = 0
	j := newJournal(cfg)
	for range 50 {
		j.append(out("0123456789"))
	}
	cfg.disk.limit = 1 << 20 // there is room again
	j.append(out("after"))
	j.append(end())
	sub, _ := j.subscribe(0)
	defer sub.close()
	text, missing := "", uint64(0)
	for {
		events, end, err := sub.next()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			text += string(e.GetStdout())
			missing += e.GetTruncated().GetBytes()
		}
		if end {
			break
		}
	}
	if !strings.HasSuffix(text, "after") || uint64(len(text))+missing != 505 || missing == 0 {
		t.Errorf("%d kept, %d truncated", len(text), missing)
	}
}

func TestTerminalGoesOnBeyondItsJournal(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MemoryPerRun, c.SpoolPerRun = 64<<10, 1<<20 })
	r := onPty("s", "stty -echo; echo up; read x; seq 1 1000000; echo still here; read x; exit 3")
	b := f.openStart(r)
	b.until("up")
	b.stop()
	f.typeIn("s", "go\n")
	sub, ok := f.svc.runs.get("s").journal.subscribe(0)
	if !ok {
		t.Fatal("cannot subscribe")
	}
	defer sub.close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var tail string
	var missing uint64
	ended := false
	err := sub.follow(ctx, time.Hour, nil, func(e *agentv1.Event) error {
		missing += e.GetTruncated().GetBytes()
		if tail += string(e.GetStdout()); len(tail) > 1000 {
			tail = tail[len(tail)-1000:]
		}
		if !ended && strings.HasSuffix(tail, "1000000\r\nstill here\r\n") {
			ended = true
			f.typeIn("s", "end\n")
		}
		return nil
	})
	if err != nil || !strings.HasSuffix(tail, "still here\r\n") || f.info("s").GetExit().GetCode() != 3 {
		t.Errorf("%v: %q, %d missing", err, tail, missing)
	}
}

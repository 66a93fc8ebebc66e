package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "ramet.dev/ramet/api/gen/rametv1"
)

// drawn is a tree as text, without its columns.
func drawn(roots []*treeNode) string {
	var b strings.Builder
	for _, root := range roots {
		for _, row := range root.draw(nil, "", "", false, time.Now()) {
			b.WriteString(row[0] + "\n")
		}
	}
	return b.String()
}

// A merge gives the winner's checkpoints to the parent, which may itself have come of one
// of them: then the records say that each came of the other.
func TestTreeHasNoCircles(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	l := &v1.Lineage{
		Sandboxes: []v1.Sandbox{
			{Id: "sbx_a", Status: "running", Origin: "checkpoint", Parent: new("sbx_w"), Checkpoint: new("ckp_w"), CreatedAt: at(3)},
			{Id: "sbx_w", Status: "stopped", Origin: "create", MergedInto: new("sbx_a"), CreatedAt: at(1)},
			{Id: "sbx_self", Status: "running", Origin: "fork", Parent: new("sbx_self"), CreatedAt: at(4)},
			{Id: "sbx_orphan", Status: "running", Origin: "fork", Parent: new("sbx_forgotten"), CreatedAt: at(5)},
		},
		Checkpoints: []v1.Checkpoint{{Id: "ckp_w", Sandbox: "sbx_a", Status: "ready", Kind: "full", CreatedAt: at(2)}},
	}
	got := drawn(growTree(l, &v1.Usage{}))
	want := "sbx_w\n└─ sbx_a\n   └─ ckp_w\nsbx_self\nsbx_orphan\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Whatever the records say, everything is in the tree once.
func TestTreeHasEverythingOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + r.IntN(12)
		l := &v1.Lineage{}
		any := func(prefix string) *string { return new(fmt.Sprintf("%s_%d", prefix, r.IntN(n+1))) }
		for i := range n {
			sb := v1.Sandbox{Id: fmt.Sprintf("sbx_%d", i), Status: "running", CreatedAt: time.Unix(int64(r.IntN(4)), 0)}
			if r.IntN(3) > 0 {
				sb.Parent = any("sbx")
			}
			if r.IntN(3) == 0 {
				sb.Checkpoint = any("ckp")
			}
			l.Sandboxes = append(l.Sandboxes, sb)
			l.Checkpoints = append(l.Checkpoints, v1.Checkpoint{Id: fmt.Sprintf("ckp_%d", i), Sandbox: *any("sbx"), CreatedAt: time.Unix(int64(r.IntN(4)), 0)})
		}
		seen := map[string]int{}
		for line := range strings.Lines(drawn(growTree(l, &v1.Usage{}))) {
			seen[strings.TrimLeft(strings.TrimSpace(line), "│├└─ ")]++
		}
		if len(seen) != 2*n {
			t.Fatalf("%d nodes of %d: %v", len(seen), 2*n, seen)
		}
		for id, times := range seen {
			if times != 1 {
				t.Fatalf("%s is there %d times", id, times)
			}
		}
	}
}

func TestPruneKeepsWhatLeftSomething(t *testing.T) {
	l := &v1.Lineage{Sandboxes: []v1.Sandbox{
		{Id: "sbx_a", Status: "stopped"},
		{Id: "sbx_b", Status: "hibernated", Parent: new("sbx_a")},
		{Id: "sbx_c", Status: "stopped", Parent: new("sbx_a")},
		{Id: "sbx_d", Status: "stopped", Parent: new("sbx_c")},
		{Id: "sbx_e", Status: "stopped", Parent: new("sbx_a"), MergedInto: new("sbx_b")},
	}}
	if got, want := drawn(prune(growTree(l, &v1.Usage{}))), "sbx_a\n├─ sbx_b\n└─ sbx_e\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A name that somebody gave a checkpoint cannot move the cursor of a terminal.
func TestTreeIsSafeToPrint(t *testing.T) {
	l := &v1.Lineage{Checkpoints: []v1.Checkpoint{{Id: "ckp_a", Sandbox: "sbx_a", Status: "ready", Name: "x\x1b[2J\ny"}}}
	var b bytes.Buffer
	if err := table(&b, []string{"ID"}, growTree(l, &v1.Usage{})[0].draw(nil, "", "", false, time.Now())); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), '\x1b') || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("%q", b.String())
	}
}

func TestRetentions(t *testing.T) {
	for in, want := range map[string]int64{
		"default": 0, "0": 0, "never": -1, "none": -1, "-1": -1, "30d": 30 * 86400, "12h": 12 * 3600, "90s": 90, "3660d": 3660 * 86400,
	} {
		if got, err := parseRetention(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "0d", "-3d", "3661d", "10ms", "-5h", "1e9h", "30 d", "soon"} {
		if got, err := parseRetention(in); err == nil {
			t.Errorf("%q: %d", in, got)
		}
	}
}

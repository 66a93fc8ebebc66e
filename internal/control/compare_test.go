package control

import (
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

func TestWhenTheContentOfAFileDecides(t *testing.T) {
	const fork = 1000
	old := diffEntry{kind: "file", size: 3, mode: 0o644, mtime: 5, ctime: 10, inode: 7}
	for name, c := range map[string]struct {
		change func(*diffEntry)
		want   verdict
	}{
		"untouched":           {func(*diffEntry) {}, same},
		"written again":       {func(e *diffEntry) { e.ctime = 11 }, unclear},
		"its time set back":   {func(e *diffEntry) { e.ctime = 11; e.mtime = 5 }, unclear},
		"replaced":            {func(e *diffEntry) { e.inode = 8 }, unclear},
		"grown":               {func(e *diffEntry) { e.size = 4 }, differs},
		"chmod":               {func(e *diffEntry) { e.mode = 0o600 }, differs},
		"chown":               {func(e *diffEntry) { e.uid = 1 }, differs},
		"a directory instead": {func(e *diffEntry) { e.kind = "directory" }, differs},
	} {
		now := old
		c.change(&now)
		if got := old.against(now, fork); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	// Both may have written it in the tick of the fork.
	late := old
	late.ctime = fork
	if got := late.against(late, fork); got != unclear {
		t.Errorf("in the tick of the fork: %d", got)
	}
	unknown := old // an old agent tells no inodes
	unknown.inode = 0
	if got := unknown.against(unknown, fork); got != unclear {
		t.Errorf("without an inode: %d", got)
	}
}

func TestWhenDisksWereOne(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	parent := sandbox.Sandbox{ID: "p", CreatedAt: at(0)}
	first := sandbox.Sandbox{ID: "1", Parent: "p", CreatedAt: at(100)}
	second := sandbox.Sandbox{ID: "2", Parent: "p", CreatedAt: at(200)}
	for _, c := range []struct {
		a, b sandbox.Sandbox
		want int64
	}{{parent, first, 98}, {first, parent, 98}, {parent, second, 198}, {first, second, 98}, {second, first, 98}} {
		if got := parted(c.a, c.b); !got.Equal(at(c.want)) {
			t.Errorf("%s and %s: %s", c.a.ID, c.b.ID, got)
		}
	}
}

package control

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/sandbox"
)

// Bounds of a diff: what a guest says is held in memory, and a caller has to read it.
const (
	maxDiffEntries = 200_000  // of one sandbox
	maxDiffBytes   = 64 << 20 // of the names of one sandbox
	maxDiffNames   = 10_000   // of each list of the answer
	maxDiffPaths   = 64
	diffDepth      = 64 // how deep the agent lists
	hashBatch      = 1000
)

// Diff is what differs in a second sandbox from a first one.
type Diff struct {
	Added, Removed, Modified []string // paths in order
	// Truncated says that there is more than is said, or than was looked at.
	Truncated bool
}

// Diff compares the files of two sandboxes below paths, /root and /tmp without any. Links
// are compared and never followed. Files that the metadata does not show to be the same are
// compared by their content; times alone are no difference. Both are woken.
func (c *Control) Diff(ctx context.Context, project string, a, b sandbox.ID, paths []string) (Diff, error) {
	asked := len(paths) > 0
	if !asked {
		paths = []string{"/root", "/tmp"}
	}
	if len(paths) > maxDiffPaths {
		return Diff{}, sandbox.Errorf(sandbox.Invalid, "too_many_paths", "%d paths are too many; give up to %d", len(paths), maxDiffPaths)
	}
	for _, p := range paths {
		if err := checkPath("paths", p); err != nil {
			return Diff{}, err
		}
		if !strings.HasPrefix(p, "/") {
			return Diff{}, sandbox.Errorf(sandbox.Invalid, "invalid_path", "path %s does not begin with a slash", shown(p))
		}
	}
	left, err := c.openSide(ctx, project, a)
	if err != nil {
		return Diff{}, err
	}
	defer left.done()
	right, err := c.openSide(ctx, project, b)
	if err != nil {
		return Diff{}, err
	}
	defer right.done()
	for _, p := range paths {
		before, err := left.list(ctx, p)
		if err != nil {
			return Diff{}, err
		}
		after, err := right.list(ctx, p)
		if err != nil {
			return Diff{}, err
		}
		if asked && !before && !after {
			return Diff{}, sandbox.Errorf(sandbox.NotFound, "file_not_found", "%s is in neither sandbox", shown(p))
		}
	}
	return compare(ctx, left, right)
}

// diffSide is one sandbox of a diff.
type diffSide struct {
	c       *Control
	sb      sandbox.Sandbox
	guest   Guest
	done    func()
	entries map[string]diffEntry
	bytes   int
	more    bool // than is in entries
}

type diffEntry struct {
	kind           string
	size           uint64
	mode, uid, gid uint32
	mtime, ctime   int64
	inode          uint64
	link           string
}

func (c *Control) openSide(ctx context.Context, project string, id sandbox.ID) (*diffSide, error) {
	sb, g, done, err := c.reach(ctx, project, id)
	if err != nil {
		return nil, err
	}
	return &diffSide{c: c, sb: sb, guest: g, done: done, entries: make(map[string]diffEntry)}, nil
}

// list enters what is at and below a path, and says whether there is anything.
func (s *diffSide) list(ctx context.Context, path string) (bool, error) {
	top, err := s.guest.Files().Stat(ctx, &agentv1.StatRequest{Path: path})
	if err != nil {
		err = s.c.explain(ctx, s.sb, err)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return false, s.lives(ctx)
		}
		return false, err
	}
	s.add(top)
	if top.Type != "directory" {
		return true, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.guest.Files().List(ctx, &agentv1.ListFilesRequest{Path: path, Depth: diffDepth})
	if err != nil {
		return false, s.c.explain(ctx, s.sb, err)
	}
	defer func() { _ = stream.Close() }() // says only what the cancel did
	base := strings.Count(strings.TrimSuffix(path, "/"), "/")
	for stream.Receive() {
		f := stream.Msg()
		if !s.add(f) {
			return true, nil
		}
		if f.Type == "directory" && strings.Count(f.Path, "/")-base >= diffDepth {
			s.more = true // what is below it is not listed
		}
	}
	if err := stream.Err(); err != nil {
		return false, s.c.explain(ctx, s.sb, err)
	}
	return true, nil
}

// lives tells a path that is not there from a sandbox that is not there any more.
func (s *diffSide) lives(ctx context.Context) error {
	now, err := s.c.store.Get(ctx, s.sb.Project, s.sb.ID)
	if err != nil {
		return err
	}
	return usable(now)
}

func (s *diffSide) add(f *agentv1.FileInfo) bool {
	s.bytes += len(f.Path) + len(f.LinkTarget)
	if len(s.entries) >= maxDiffEntries || s.bytes > maxDiffBytes {
		s.more = true
		return false
	}
	s.entries[f.Path] = diffEntry{
		kind: f.Type, size: f.Size, mode: f.Mode, uid: f.Uid, gid: f.Gid,
		mtime: f.ModifiedUnixNanos, ctime: f.ChangedUnixNanos, inode: f.Inode, link: f.LinkTarget,
	}
	return true
}

// verdict is what the metadata of two entries says.
type verdict int

const (
	same verdict = iota
	differs
	unclear // the content decides
)

// against compares two entries. A file that has the same inode and times on both sides is the
// same when it was last changed before the time apart, in nanoseconds since 1970: after that
// two machines may have changed it differently within one tick of the clock.
func (e diffEntry) against(o diffEntry, apart int64) verdict {
	switch {
	case e.kind != o.kind || e.mode != o.mode || e.uid != o.uid || e.gid != o.gid || e.link != o.link:
		return differs
	case e.kind != "file":
		return same
	case e.size != o.size:
		return differs
	case e.inode != 0 && e.inode == o.inode && e.ctime == o.ctime && e.mtime == o.mtime && e.ctime < apart:
		return same // untouched since they were one
	case e.size == 0:
		return same
	}
	return unclear
}

// parted returns a time before which the disks of two sandboxes were one, if they ever were.
func parted(a, b sandbox.Sandbox) time.Time {
	const margin = 2 * time.Second // clocks of guests, and the moment between record and fork
	at := a.CreatedAt
	if a.ID == b.Parent || b.ID != a.Parent && b.CreatedAt.Before(at) {
		at = b.CreatedAt
	}
	return at.Add(-margin)
}

func compare(ctx context.Context, left, right *diffSide) (Diff, error) {
	d := Diff{Truncated: left.more || right.more}
	apart := parted(left.sb, right.sb).UnixNano()
	var unsure []string
	for _, p := range slices.Sorted(maps.Keys(left.entries)) {
		other, ok := right.entries[p]
		switch {
		case !ok && right.more: // it may be among those that were not listed
		case !ok:
			d.put(&d.Removed, p)
		default:
			switch left.entries[p].against(other, apart) {
			case differs:
				d.put(&d.Modified, p)
			case unclear:
				unsure = append(unsure, p)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(right.entries)) {
		if _, ok := left.entries[p]; !ok && !left.more {
			d.put(&d.Added, p)
		}
	}
	for batch := range slices.Chunk(unsure, hashBatch) {
		before, err := left.hash(ctx, batch)
		if err != nil {
			return Diff{}, err
		}
		after, err := right.hash(ctx, batch)
		if err != nil {
			return Diff{}, err
		}
		for i, p := range batch {
			if before[i] == nil || !bytes.Equal(before[i], after[i]) {
				d.put(&d.Modified, p)
			}
		}
	}
	slices.Sort(d.Modified)
	return d, nil
}

func (d *Diff) put(list *[]string, path string) {
	if len(*list) >= maxDiffNames {
		d.Truncated = true
		return
	}
	*list = append(*list, path)
}

// hash returns the checksum of each file, nil for what cannot be read.
func (s *diffSide) hash(ctx context.Context, paths []string) ([][]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sums := make([][]byte, len(paths))
	stream, err := s.guest.Files().Hash(ctx, &agentv1.HashRequest{Paths: paths})
	if err == nil {
		defer func() { _ = stream.Close() }() // says only what the cancel did
		for stream.Receive() {
			m := stream.Msg()
			if int(m.Index) < len(sums) && len(m.Sha256) == 32 {
				sums[m.Index] = m.Sha256
			}
		}
		err = stream.Err()
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return nil, &sandbox.Error{
			Kind: sandbox.Unsupported, Code: "agent_too_old", Err: err,
			Message: "sandbox " + s.sb.ID.String() + " has an agent that cannot compare files; create a new sandbox and copy the files to it",
		}
	}
	if err != nil {
		return nil, s.c.explain(ctx, s.sb, err)
	}
	return sums, nil
}

package cli

import (
	"context"
	"sort"
	"time"

	"github.com/spf13/cobra"

	v1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/sandbox"
)

func (p *program) treeCommand() *cobra.Command {
	var all, full, asJSON bool
	cmd := &cobra.Command{
		Use:   "tree [ID]",
		Short: "Show which sandboxes and checkpoints come of which",
		Long: `Show sandboxes and checkpoints as a tree: below a sandbox its forks and
checkpoints, below a checkpoint what was started from it. With ID only the family
of that sandbox. OWN is the memory that a sandbox shares with no other.

Sandboxes that have ended are only shown when something came of them, or when they
were merged into another; --all shows them while their records are kept.`,
		Example: `  ramet tree
  ramet tree 3f2a --all
  ramet tree --json | jq '.tree[].children[].id'`,
		Args:              atMostOne,
		ValidArgsFunction: p.completeOneID,
		RunE: withSignals(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			id := ""
			if len(args) > 0 {
				if id, err = resolveID(ctx, c, args[0]); err != nil {
					return err
				}
			}
			lineage, err := c.Lineage(ctx, id)
			if err != nil {
				return err
			}
			usage, err := c.Usage(ctx)
			if err != nil {
				return err
			}
			roots := growTree(lineage, usage)
			if !all {
				roots = prune(roots)
			}
			if asJSON {
				return printJSON(p.Out, map[string]any{"tree": append([]*treeNode{}, roots...)})
			}
			var rows [][]string
			for _, root := range roots {
				rows = root.draw(rows, "", "", full, time.Now())
			}
			return table(p.Out, []string{"ID", "STATUS", "AGE", "OWN", "NOTE"}, rows)
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also sandboxes that have ended and left nothing")
	cmd.Flags().BoolVar(&full, "full", false, "show whole ids")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// treeNode is a sandbox or a checkpoint with what came of it.
type treeNode struct {
	ID         string      `json:"id"`
	Type       string      `json:"type"` // sandbox or checkpoint
	Status     string      `json:"status"`
	CreatedAt  time.Time   `json:"created_at"`
	Origin     string      `json:"origin,omitempty"`      // of a sandbox
	OwnBytes   *int64      `json:"own_bytes,omitempty"`   // of a sandbox with a machine
	MergedInto string      `json:"merged_into,omitempty"` // of a sandbox
	Name       string      `json:"name,omitempty"`        // of a checkpoint
	Kind       string      `json:"kind,omitempty"`        // of a checkpoint
	SizeBytes  *int64      `json:"size_bytes,omitempty"`  // of a checkpoint
	Children   []*treeNode `json:"children"`

	parent *treeNode
}

const (
	nodeSandbox    = "sandbox"
	nodeCheckpoint = "checkpoint"
)

// growTree puts everything below what it comes of. What comes of nothing that is
// known is a root; so is whatever would close a circle, which a merge can.
func growTree(l *v1.Lineage, u *v1.Usage) []*treeNode {
	own := make(map[string]int64, len(u.Sandboxes))
	for _, s := range u.Sandboxes {
		own[s.Id] = s.OwnBytes
	}
	nodes := make(map[string]*treeNode, len(l.Sandboxes)+len(l.Checkpoints))
	above := make(map[string][]string, len(nodes)) // the first that is known is above it
	for _, sb := range l.Sandboxes {
		n := &treeNode{
			ID: sb.Id, Type: nodeSandbox, Status: sb.Status, CreatedAt: sb.CreatedAt, Origin: sb.Origin,
			MergedInto: deref(sb.MergedInto), Children: []*treeNode{},
		}
		if bytes, found := own[sb.Id]; found && sandbox.State(sb.Status).HasMachine() {
			n.OwnBytes = &bytes
		}
		nodes[sb.Id], above[sb.Id] = n, []string{deref(sb.Checkpoint), deref(sb.Parent)}
	}
	for _, ckp := range l.Checkpoints {
		size := ckp.SizeBytes
		nodes[ckp.Id] = &treeNode{
			ID: ckp.Id, Type: nodeCheckpoint, Status: ckp.Status, CreatedAt: ckp.CreatedAt,
			Name: ckp.Name, Kind: ckp.Kind, SizeBytes: &size, Children: []*treeNode{},
		}
		above[ckp.Id] = []string{ckp.Sandbox}
	}
	inOrder := make([]*treeNode, 0, len(nodes))
	for _, n := range nodes {
		inOrder = append(inOrder, n)
	}
	sort.Slice(inOrder, func(i, j int) bool {
		a, b := inOrder[i], inOrder[j]
		if !a.CreatedAt.Equal(b.CreatedAt) {
			return a.CreatedAt.Before(b.CreatedAt)
		}
		return a.ID < b.ID
	})
	var roots []*treeNode
	for _, n := range inOrder {
		for _, id := range above[n.ID] {
			if over := nodes[id]; over != nil && !over.below(n) {
				n.parent = over
				break
			}
		}
		if n.parent == nil {
			roots = append(roots, n)
		} else {
			n.parent.Children = append(n.parent.Children, n)
		}
	}
	return roots
}

// below says whether n is other or comes of it.
func (n *treeNode) below(other *treeNode) bool {
	for at := n; at != nil; at = at.parent {
		if at == other {
			return true
		}
	}
	return false
}

// prune leaves out sandboxes that have ended and of which nothing came.
func prune(nodes []*treeNode) []*treeNode {
	kept := []*treeNode{}
	for _, n := range nodes {
		n.Children = prune(n.Children)
		ended := n.Type == nodeSandbox && n.Status == string(sandbox.Stopped) && n.MergedInto == ""
		if !ended || len(n.Children) > 0 {
			kept = append(kept, n)
		}
	}
	return kept
}

// draw appends the rows of a node and of what is below it. first is before the node's
// own id, rest before those below it.
func (n *treeNode) draw(rows [][]string, first, rest string, full bool, now time.Time) [][]string {
	id, into := n.ID, n.MergedInto
	if !full {
		id, into = shortID(id), shortID(into)
	}
	row := []string{first + id, n.Status, age(n.CreatedAt, now), "-", "-"}
	switch {
	case n.Type == nodeCheckpoint:
		row[1] = n.Kind + " checkpoint"
		if n.Status != string(sandbox.SnapshotReady) {
			row[1] += " (" + n.Status + ")"
		}
		row[4] = byteSize(*n.SizeBytes) + " on disk"
		if n.Name != "" {
			row[4] = n.Name + ", " + row[4]
		}
	case n.MergedInto != "":
		row[4] = "merged into " + into
	case n.Origin == string(sandbox.OriginSpace):
		row[4] = "of a Space"
	}
	if n.OwnBytes != nil {
		row[3] = byteSize(*n.OwnBytes)
	}
	rows = append(rows, row)
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			rows = child.draw(rows, rest+"└─ ", rest+"   ", full, now)
		} else {
			rows = child.draw(rows, rest+"├─ ", rest+"│  ", full, now)
		}
	}
	return rows
}

package control_test

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// owned checks that every machine and snapshot on the host is in the one record that owns it,
// that nothing is half, and that no machine stands still.
func (n *node) owned(t failer) {
	t.Helper()
	ctx := context.Background()
	records, err := n.store.OfNode(ctx, "n1")
	if err != nil {
		t.Fatalf("%v", err)
	}
	machines := map[sandbox.InstanceID]bool{}
	for _, sb := range records {
		if (sb.Hibernation != "") != (sb.State == sandbox.Hibernated) {
			t.Errorf("sandbox %s is %s with the snapshot %q", sb.ID, sb.State, sb.Hibernation)
		}
		if sb.State != sandbox.Running {
			continue
		}
		machines[sb.Instance] = true
		if !n.machines.Alive(sb.Instance) || n.machines.Paused(sb.Instance) {
			t.Errorf("sandbox %s runs; its machine: alive %v, paused %v", sb.ID, n.machines.Alive(sb.Instance), n.machines.Paused(sb.Instance))
		}
		if name := n.machines.Name(sb.Instance); name != sb.ID {
			t.Errorf("the guest of sandbox %s has the identity of %s", sb.ID, name)
		}
	}
	found, err := n.machines.Instances()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, id := range found {
		if !machines[id] {
			t.Errorf("machine %s is nobody's", id)
		}
	}
	snapshots, err := n.store.SnapshotsOfNode(ctx, "n1")
	if err != nil {
		t.Fatalf("%v", err)
	}
	known := map[sandbox.SnapshotID]bool{}
	for _, s := range snapshots {
		known[s.ID] = true
		if s.State != sandbox.SnapshotReady || !n.machines.HasSnapshot(s.ID) {
			t.Errorf("%s snapshot %s is %s, on the disk %v", s.Use, s.ID, s.State, n.machines.HasSnapshot(s.ID))
		}
	}
	onDisk, err := n.machines.Snapshots()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, id := range onDisk {
		if !known[id] {
			t.Errorf("snapshot %s is nobody's", id)
		}
	}
}

// failer is a *testing.T or *rapid.T.
type failer interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

func (n *node) put(t *testing.T, id sandbox.ID, name, content string) {
	t.Helper()
	if _, err := n.WriteFile(t.Context(), project, id, name, "", 0, true, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) cat(t *testing.T, id sandbox.ID, name string) string {
	t.Helper()
	d, err := n.ReadFile(t.Context(), project, id, name, "", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b := make([]byte, 1024)
	k, _ := d.Read(b)
	return string(b[:k])
}

// followed is a run that is read to its end.
type followed struct{ s *control.Stream }

// run starts a program and returns when it runs.
func (n *node) run(t *testing.T, id sandbox.ID, script string) followed {
	t.Helper()
	s, err := n.Run(t.Context(), project, id, control.RunRequest{Code: script, Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	return followed{s}
}

func (f followed) rest() (string, error) {
	out := ""
	for {
		e, err := f.s.Next()
		if err != nil {
			return out, err
		}
		out += string(e.GetStdout())
		if e.GetExit() != nil {
			return out, nil
		}
	}
}

package control_test

import (
	"fmt"
	"testing"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

func TestDiff(t *testing.T) {
	n := fresh(t)
	a := n.create(t)
	for name, content := range map[string]string{"/root/same": "1", "/root/gone": "1", "/root/grown": "1", "/root/changed": "a", "/root/d/mode": "x", "/tmp/t": "1"} {
		n.put(t, a.ID, name, content)
	}
	f, err := n.Fork(t.Context(), project, a.ID, control.ForkRequest{N: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := f.Children[0]
	n.put(t, b.ID, "/root/grown", "12")
	n.put(t, b.ID, "/root/changed", "b")
	n.put(t, b.ID, "/root/new/deep", "b")
	n.put(t, b.ID, "/root/same", "1") // written again
	mode := uint32(0o600)
	if _, err := n.SetAttributes(t.Context(), project, b.ID, "/root/d/mode", "", &mode, "", ""); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), project, b.ID, "/root/gone", "", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Hibernate(t.Context(), project, b.ID); err != nil {
		t.Fatal(err)
	}
	d, err := n.Diff(t.Context(), project, a.ID, b.ID, nil)
	if err != nil || fmt.Sprint(d.Added) != "[/root/new /root/new/deep]" || fmt.Sprint(d.Removed) != "[/root/gone]" ||
		fmt.Sprint(d.Modified) != "[/root/changed /root/d/mode /root/grown]" || d.Truncated {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := n.Diff(t.Context(), project, a.ID, b.ID, []string{"/root/grown"}); err != nil || len(d.Modified) != 1 || len(d.Added) != 0 {
		t.Errorf("%+v %v", d, err)
	}
	if _, err := n.Diff(t.Context(), project, a.ID, b.ID, []string{"/nowhere"}); codeOf(err) != "file_not_found" {
		t.Errorf("%v", err)
	}
	if _, err := n.Diff(t.Context(), project, a.ID, b.ID, []string{"relative"}); codeOf(err) != "invalid_path" {
		t.Errorf("%v", err)
	}
	if _, err := n.Diff(t.Context(), "other", a.ID, b.ID, nil); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("%v", err)
	}
	n.machines.OldAgents = true
	old := n.create(t)
	n.put(t, old.ID, "/root/changed", "b")
	if _, err := n.Diff(t.Context(), project, a.ID, old.ID, nil); codeOf(err) != "agent_too_old" || sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("%v", err)
	}
	n.machines.OldAgents = false
	n.machines.LongNames(100, 1<<20)
	hostile := n.create(t)
	if d, err := n.Diff(t.Context(), project, hostile.ID, a.ID, nil); err != nil || !d.Truncated {
		t.Errorf("a hostile guest: %v", err)
	}
}

package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

// cgroupTree makes a directory that looks like the mounts of a cgroup version. The
// kernel makes the files of a group; here they are there beforehand.
func cgroupTree(t *testing.T, groups map[string][]string) string {
	t.Helper()
	root := t.TempDir()
	for dir, files := range groups {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(root, dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestCgroupLimits(t *testing.T) {
	shape := sandbox.Shape{VCPUs: 2, MemoryMB: 1024, DiskMB: 4096}
	for name, c := range map[string]struct {
		groups            map[string][]string
		placed, afterward map[string]string
	}{
		"version 2": {
			groups: map[string][]string{
				"":           {"cgroup.controllers", "cgroup.subtree_control"},
				"ramet":      {"cgroup.subtree_control"},
				"ramet/7001": {"cgroup.procs", "memory.max", "pids.max", "cpu.weight"},
			},
			placed: map[string]string{
				"ramet/7001/memory.max": "1879048192", "ramet/7001/pids.max": "256", "ramet/7001/cpu.weight": "200", "ramet/7001/cgroup.procs": "42",
				"cgroup.subtree_control": "+cpu", "ramet/cgroup.subtree_control": "+cpu",
			},
			afterward: map[string]string{"ramet/7001/memory.max": "2952790016", "ramet/7001/cpu.weight": "20"},
		},
		"version 1": {
			groups: map[string][]string{
				"memory": {"cgroup.procs"}, "memory/ramet/7001": {"cgroup.procs", "memory.limit_in_bytes"},
				"pids": {"cgroup.procs"}, "pids/ramet/7001": {"cgroup.procs", "pids.max"},
				"cpu": {"cgroup.procs"}, "cpu/ramet/7001": {"cgroup.procs", "cpu.shares"},
			},
			placed: map[string]string{
				"memory/ramet/7001/memory.limit_in_bytes": "1879048192", "memory/ramet/7001/cgroup.procs": "42",
				"pids/ramet/7001/pids.max": "256", "cpu/ramet/7001/cpu.shares": "2048", "cpu/ramet/7001/cgroup.procs": "42",
			},
			afterward: map[string]string{"memory/ramet/7001/memory.limit_in_bytes": "2952790016", "cpu/ramet/7001/cpu.shares": "204"},
		},
		"version 2 without controllers": {
			groups: map[string][]string{"": {"cgroup.controllers"}, "ramet/7001": {"cgroup.procs"}},
			placed: map[string]string{"ramet/7001/cgroup.procs": "42"},
		},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			root := cgroupTree(t, c.groups)
			g := Find(root, "ramet", Room{OverheadMB: 768, MaxTasks: 256})
			if err := g.Place("7001", shape, 42); err != nil {
				t.Fatal(err)
			}
			check := func(want map[string]string) {
				t.Helper()
				for file, value := range want {
					// A real file takes a whole write; this one keeps the tail of a longer one.
					if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || !strings.HasPrefix(string(got), value) {
						t.Errorf("%s has %q (%v), want %q", file, got, err, value)
					}
				}
			}
			check(c.placed)
			if err := g.AllowMemory("7001", 2048); err != nil {
				t.Fatal(err)
			}
			if err := g.Weigh("7001", 2, true); err != nil {
				t.Fatal(err)
			}
			check(c.afterward)
		})
	}
}

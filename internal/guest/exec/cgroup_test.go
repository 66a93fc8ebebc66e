package exec

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/internal/guest/reap"
)

func TestFullMainGroupLeavesTheSpareOne(t *testing.T) {
	dir := t.TempDir() // without files: as groups without limits
	f := newFixture(t, stdlib, func(c *Config) { c.Cgroup, c.MainCgroup, c.SpareCgroup = dir, dir+"/main", dir+"/spare" })
	var groups []string
	full := map[string]bool{}
	f.svc.startIn = func(cmd *exec.Cmd, group string) (*reap.Process, error) {
		groups = append(groups, filepath.Base(group))
		if full[filepath.Base(group)] {
			return nil, unix.EAGAIN
		}
		return f.svc.cfg.Reaper.Start(cmd)
	}
	if tr := f.bash("echo up"); tr.stdout != "up\n" || tr.stderr != "" {
		t.Errorf("with room in the main group: %q %q %v", tr.stdout, tr.stderr, tr.exit)
	}
	full["main"] = true
	if tr := f.bash("echo up"); tr.stdout != "up\n" || !strings.HasPrefix(tr.stderr, tasksNotice) {
		t.Errorf("without: %q %q %v", tr.stdout, tr.stderr, tr.exit)
	}
	if tr := f.python("print('up')"); tr.stdout != "up\n" || !strings.HasPrefix(tr.stderr, tasksNotice) {
		t.Errorf("an interpreter without: %q %q %v", tr.stdout, tr.stderr, tr.exit)
	}
	if tr := f.python("print('up')"); tr.stderr != "" {
		t.Errorf("its next call is told again: %q", tr.stderr)
	}
	full["main"] = false
	for _, c := range []struct{ max, current, notice string }{
		{"max", "4000", ""}, {"100", "100", tasksNotice}, {"100", "85", tasksNotice}, {"100", "20", ""},
	} {
		writeFile(t, dir+"/main/pids.events", "max 7\n")
		writeFile(t, dir+"/main/pids.max", c.max+"\n")
		writeFile(t, dir+"/main/pids.current", c.current+"\n")
		if tr := f.bash("true"); notice(tr.stderr) != c.notice {
			t.Errorf("with %s processes of %s: stderr %q", c.current, c.max, tr.stderr)
		}
	}
	full["main"], full["spare"] = true, true
	tr := f.bash("echo up")
	if tr.exit.GetReason() != agentv1.Reason_START_FAILED || !strings.Contains(tr.exit.GetMessage(), "as many processes as it can have") {
		t.Errorf("without room in both: %v", tr.exit)
	}
	want(t, "groups", strings.Join(groups, " "), "main main spare main spare main spare spare main main spare")
}

func TestMainGroupIsPassedByWhileItsMemoryIsFull(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { t.Helper(); writeFile(t, filepath.Join(dir, name), text) }
	f := newFixture(t, func(c *Config) { c.Cgroup, c.MainCgroup, c.SpareCgroup = dir, dir, dir+"/spare" })
	f.svc.oom = oomCounter{filepath.Join(dir, "memory.events"), "oom_kill"}
	group := ""
	f.svc.startIn = func(cmd *exec.Cmd, in string) (*reap.Process, error) {
		group = in
		return f.svc.cfg.Reaper.Start(cmd)
	}
	write("memory.max", "1000000000")
	write("memory.stat", "anon 990000000\n")
	for _, c := range []struct{ kills, group, notice string }{
		{"oom_kill 0\n", dir, ""}, // nothing has happened: not looked at
		{"oom_kill 1\n", dir + "/spare", memoryNotice},
	} {
		write("memory.events", c.kills)
		if tr := f.bash("true"); group != c.group || notice(tr.stderr) != c.notice {
			t.Errorf("after %q: in %s, stderr %q", c.kills, group, tr.stderr)
		}
	}
	write("memory.stat", "anon 90000000\n")
	if tr := f.bash("true"); group != dir || tr.stderr != "" {
		t.Errorf("with memory again: in %s, stderr %q", group, tr.stderr)
	}
}

func TestMemoryFreeCountsWhatCannotBeTakenBack(t *testing.T) {
	dir := t.TempDir()
	s := &Service{cfg: Config{MainCgroup: dir, Meminfo: filepath.Join(dir, "meminfo")}}
	write := func(name, text string) { t.Helper(); writeFile(t, filepath.Join(dir, name), text) }
	if got := s.memoryFree(); got < spareMemory {
		t.Errorf("a group without files has %d bytes free", got)
	}
	write("memory.max", "max\n")
	write("memory.stat", "anon 500\nfile 7000\nkernel 200\nshmem 100\nslab_reclaimable 50\nanon_thp 400\n")
	if got := s.memoryFree(); got < spareMemory {
		t.Errorf("a group without a limit has %d bytes free", got)
	}
	write("memory.max", "1000\n")
	if got := s.memoryFree(); got != 1000-500-200-100+50 {
		t.Errorf("%d bytes free", got)
	}
	// A kernel that does not account memory by groups.
	if err := os.Remove(filepath.Join(dir, "memory.stat")); err != nil {
		t.Fatal(err)
	}
	write("meminfo", "MemTotal: 1000000 kB\nMemAvailable: 100000 kB\n")
	if got := s.memoryFree(); got != 100000<<10-spareMemory {
		t.Errorf("%d bytes free", got)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// notice cuts off what is the same in every notice.
func notice(stderr string) string {
	before, _, _ := strings.Cut(stderr, "to end all")
	return before
}

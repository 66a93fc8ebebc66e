package exec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func (f *fixture) createContext(id, language, cwd string) *agentv1.Context {
	f.t.Helper()
	c, err := f.client.CreateContext(f.ctx(), &agentv1.CreateContextRequest{Id: id, Language: language, Cwd: cwd})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// in runs code in a context.
func (f *fixture) in(context, code string) *transcript {
	f.t.Helper()
	return f.run(&agentv1.RunRequest{Context: context, Code: code})
}

// inOK runs code in a context that must succeed, and returns its standard output.
func (f *fixture) inOK(context, code string) string {
	f.t.Helper()
	tr := f.in(context, code)
	if tr.exit.GetCode() != 0 || tr.exit.GetReason() != agentv1.Reason_EXITED {
		f.t.Fatalf("%s\nexit %v\nstderr %s", code, tr.exit, tr.stderr)
	}
	return tr.stdout
}

// snippets say the same in each language.
type snippets struct{ set, print, fail, endless, die, cwd, env, late, pid string }

var inLanguages = map[string]snippets{
	"python": {
		"x = 41 + 1", "print(x)", "raise ValueError('bad')", "print('on', flush=True)\nwhile True: pass", "import os; os._exit(3)",
		"import os; print(os.getcwd())", "import os; print(os.environ.get('CALL', 'none'))",
		"import threading, time\ndef say():\n  time.sleep(0.2); print('late')\nthreading.Thread(target=say).start()", "import os; print(os.getpid())",
	},
	"javascript": {
		"const x = 41 + 1", "console.log(x)", "throw new RangeError('bad')", "console.log('on'); while (true) {}", "process.exit(3)",
		"console.log(process.cwd())", "console.log(process.env.CALL ?? 'none')", "setTimeout(() => console.log('late'), 200)", "console.log(process.pid)",
	},
	"bash": {
		"x=$((41 + 1))", "echo $x", "f() { return 7; }; f", "g() { echo on; while :; do :; done; }; g; x=lost", "exit 3",
		"pwd", "echo ${CALL-none}", "(sleep 0.2; echo late) &", "echo $$",
	},
}

func everyLanguage(t *testing.T, test func(t *testing.T, f *fixture, language string, s snippets)) {
	for language, s := range inLanguages {
		t.Run(language, func(t *testing.T) { test(t, newFixture(t), language, s) })
	}
}

func TestContextsHaveStatesOfTheirOwn(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		dir := t.TempDir()
		one := f.createContext("one", language, dir)
		if one.GetLanguage() != language || one.GetCwd() != dir || !one.GetRunning() {
			t.Errorf("context %v", one)
		}
		f.createContext("two", language, "")
		f.inOK("one", s.set)
		if out := f.inOK("one", s.print); out != "42\n" {
			t.Errorf("state in one: %q", out)
		}
		if tr := f.in("two", s.print); strings.Contains(tr.stdout, "42") {
			t.Errorf("the state of one is in two: %q", tr.stdout)
		}
		if out := f.inOK("one", s.cwd); out != dir+"\n" {
			t.Errorf("directory %q, want %s", out, dir)
		}
		if a, b := f.inOK("one", s.pid), f.inOK("two", s.pid); a == b {
			t.Errorf("one process %s for both", a)
		}
		list, err := f.client.ListContexts(f.ctx(), &agentv1.ListContextsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range list.GetContexts() {
			ids = append(ids, c.GetId())
		}
		if !slices.Equal(ids, []string{"default", "one", "two"}) {
			t.Errorf("contexts %v", ids)
		}
	})
}

func TestContextRestartAndRemove(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		dir := t.TempDir()
		f.createContext("c", language, dir)
		f.inOK("c", s.set)
		running := f.openRun(&agentv1.RunRequest{Context: "c", Code: s.endless})
		running.until("on")
		c, err := f.client.RestartContext(f.ctx(), &agentv1.RestartContextRequest{Id: "c"})
		if err != nil || c.GetCwd() != dir || !c.GetRunning() {
			t.Fatalf("restart: %v %v", c, err)
		}
		if tr := running.rest(); tr.exit.GetReason() != agentv1.Reason_SIGNALED || !strings.Contains(tr.exit.GetMessage(), "restarted") {
			t.Errorf("the call that ran: %v", tr.exit)
		}
		tr := f.in("c", s.print)
		if strings.Contains(tr.stdout, "42") || strings.Contains(tr.stderr, "[ramet]") {
			t.Errorf("after the restart: %q %q", tr.stdout, tr.stderr)
		}
		if out := f.inOK("c", s.cwd); out != dir+"\n" {
			t.Errorf("directory after the restart: %q", out)
		}
		if _, err := f.client.RemoveContext(f.ctx(), &agentv1.RemoveContextRequest{Id: "c"}); err != nil {
			t.Fatal(err)
		}
		_, err = f.client.RestartContext(f.ctx(), &agentv1.RestartContextRequest{Id: "c"})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a context that was removed: %v", err)
		}
	})
}

func TestContextRemovalEndsItsCalls(t *testing.T) {
	f := newFixture(t)
	f.createContext("c", "python", "")
	running := f.openRun(&agentv1.RunRequest{Context: "c", Code: "print('on', flush=True)\nwhile True: pass"})
	running.until("on")
	waiting := f.openRun(&agentv1.RunRequest{Context: "c", Code: "1", RunId: "w"})
	eventually(t, "the second call waits", func() bool { return f.svc.runs.get("w") != nil })
	if _, err := f.client.RemoveContext(f.ctx(), &agentv1.RemoveContextRequest{Id: "c"}); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*background{running, waiting} {
		if tr := b.rest(); !strings.Contains(tr.exit.GetMessage(), "removed") {
			t.Errorf("exit %v", tr.exit)
		}
	}
	_, err := f.client.RemoveContext(f.ctx(), &agentv1.RemoveContextRequest{Id: "default"})
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("removing the first context: %v", err)
	}
}

func TestContextTimeoutInterruptsAndKeepsState(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		f.createContext("c", language, "")
		f.inOK("c", s.set)
		tr := f.run(&agentv1.RunRequest{Context: "c", Code: s.endless, TimeoutMillis: 300})
		if tr.exit.GetReason() != agentv1.Reason_TIMEOUT {
			t.Fatalf("exit %v %s", tr.exit, tr.stderr)
		}
		if out := f.inOK("c", s.print); out != "42\n" {
			t.Errorf("state after the timeout: %q", out)
		}
	})
}

func TestContextInterruptReachesOnlyItsCall(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		f.createContext("c", language, "")
		f.inOK("c", s.set)
		for n := range 3 {
			id := fmt.Sprintf("r%d", n)
			b := f.openRun(&agentv1.RunRequest{Context: "c", Code: s.endless, RunId: id})
			b.until("on")
			if err := f.signal(id, int32(unix.SIGINT)); err != nil {
				t.Fatal(err)
			}
			tr := b.rest()
			if tr.exit.GetReason() != agentv1.Reason_INTERRUPTED || tr.exit.GetCode() != 130 {
				t.Fatalf("exit %v %s", tr.exit, tr.stderr)
			}
			if out := f.inOK("c", s.print); out != "42\n" {
				t.Errorf("state after the interrupt: %q", out)
			}
		}
	})
}

func TestContextInterpreterDeathIsToldAndLaterCallsWork(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		f.createContext("c", language, "")
		f.inOK("c", s.set)
		tr := f.in("c", s.die)
		want := agentv1.Reason_INTERPRETER_DIED
		if language == "bash" {
			want = agentv1.Reason_EXITED // it was asked to
		}
		if tr.exit.GetCode() != 3 || tr.exit.GetReason() != want {
			t.Errorf("exit %v", tr.exit)
		}
		tr = f.in("c", s.set)
		if tr.exit.GetCode() != 0 || tr.stderr != languages[language].lost {
			t.Errorf("after the death: %v %q", tr.exit, tr.stderr)
		}
		if tr := f.in("c", s.print); tr.stdout != "42\n" || tr.stderr != "" {
			t.Errorf("after that: %q %q", tr.stdout, tr.stderr)
		}
	})
}

func TestContextEnvironmentAndDirectoryOfACallDoNotLeak(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		home, dir := t.TempDir(), t.TempDir()
		f.createContext("c", language, home)
		call := map[string]string{"CALL": "it's \\ a \"test\"\nä"}
		tr := f.run(&agentv1.RunRequest{Context: "c", Code: s.env, Env: call})
		if tr.stdout != call["CALL"]+"\n" && !(language == "bash" && strings.Contains(tr.stdout, "it's \\ a \"test\" ä")) {
			t.Errorf("environment of the call: %q %v", tr.stdout, tr.stderr)
		}
		if out := f.inOK("c", s.env); out != "none\n" {
			t.Errorf("environment of the next: %q", out)
		}
		tr = f.run(&agentv1.RunRequest{Context: "c", Code: s.endless, Env: call, TimeoutMillis: 200})
		if tr.exit.GetReason() != agentv1.Reason_TIMEOUT {
			t.Errorf("exit %v", tr.exit)
		}
		if out := f.inOK("c", s.env); out != "none\n" {
			t.Errorf("environment after an interrupt: %q", out)
		}
		tr = f.run(&agentv1.RunRequest{Context: "c", Code: s.cwd, Cwd: dir})
		if tr.stdout != dir+"\n" {
			t.Errorf("directory of the call: %q", tr.stdout)
		}
		if out := f.inOK("c", s.cwd); out != home+"\n" {
			t.Errorf("directory of the next: %q", out)
		}
		tr = f.run(&agentv1.RunRequest{Context: "c", Code: s.cwd, Cwd: "/no/such"})
		if tr.exit.GetReason() != agentv1.Reason_START_FAILED || !strings.Contains(tr.exit.GetMessage(), "/no/such") {
			t.Errorf("a directory that is not there: %v", tr.exit)
		}
		f.renew(Renewal{Env: map[string]string{"CALL": "all"}})
		if out := f.inOK("c", s.env); out != "all\n" {
			t.Errorf("environment of the machine: %q", out)
		}
		f.createContext("later", language, home)
		if out := f.inOK("later", s.env); out != "all\n" {
			t.Errorf("environment of the machine in a later context: %q", out)
		}
		f.renew(Renewal{})
		if out := f.inOK("c", s.env); out != "none\n" {
			t.Errorf("environment that was taken away: %q", out)
		}
	})
}

func TestContextLateOutputComesFirstInTheNextCall(t *testing.T) {
	everyLanguage(t, func(t *testing.T, f *fixture, language string, s snippets) {
		f.createContext("c", language, "")
		if tr := f.in("c", s.late); strings.Contains(tr.stdout, "late") {
			t.Fatalf("the call waited for its background: %q", tr.stdout)
		}
		f.inOK("c", s.set)
		var out string
		eventually(t, "late output", func() bool {
			out += f.inOK("c", s.print)
			return strings.Contains(out, "late\n42\n")
		})
	})
}

func TestContextsDoNotWaitForEachOther(t *testing.T) {
	f := newFixture(t)
	f.createContext("busy", "python", "")
	f.createContext("free", "python", "")
	b := f.openRun(&agentv1.RunRequest{Context: "busy", Code: "print('on', flush=True)\nwhile True: pass", RunId: "busy"})
	b.until("on")
	if out := f.inOK("free", "print(1)"); out != "1\n" {
		t.Errorf("%q", out)
	}
	if out := f.pythonOK("print(2)"); out != "2\n" {
		t.Errorf("%q", out)
	}
	runs, err := f.client.List(f.ctx(), &agentv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if c := runs.GetRuns()[0].GetContext(); c != "busy" {
		t.Errorf("context of the run: %q", c)
	}
	if err := f.signal("busy", int32(unix.SIGINT)); err != nil {
		t.Fatal(err)
	}
	b.rest()
}

func TestContextThatTheMemoryHasNoRoomForIsRefused(t *testing.T) {
	meminfo := filepath.Join(t.TempDir(), "meminfo")
	says := func(kb int) {
		if err := os.WriteFile(meminfo, fmt.Appendf(nil, "MemTotal: 1000000 kB\nMemFree: 10 kB\nMemAvailable: %d kB\n", kb), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says(100 << 10)
	f := newFixture(t, func(c *Config) { c.Meminfo = meminfo })
	_, err := f.client.CreateContext(f.ctx(), &agentv1.CreateContextRequest{Id: "large", Language: "python"})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "100 MB of memory left") {
		t.Fatalf("an interpreter without room: %v", err)
	}
	f.createContext("small", "bash", "")
	says(400 << 10)
	f.createContext("large", "python", "")
	says(1 << 10) // those that are there go on, and may be replaced
	if out := f.inOK("large", "print(6*7)"); out != "42\n" {
		t.Errorf("%q", out)
	}
	if _, err := f.client.RestartContext(f.ctx(), &agentv1.RestartContextRequest{Id: "large"}); err != nil {
		t.Error(err)
	}
}

func TestTooManyContextsAreRefusedAndWedgeNothing(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxContexts = 4 })
	for n := range 3 {
		f.createContext(fmt.Sprint(n), "bash", "")
	}
	_, err := f.client.CreateContext(f.ctx(), &agentv1.CreateContextRequest{Id: "more", Language: "bash"})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "the limit") {
		t.Fatalf("one too many: %v", err)
	}
	s, err := f.client.Run(f.ctx(), &agentv1.RunRequest{Language: "javascript", Code: "1"})
	if err == nil {
		for s.Receive() {
			t.Errorf("event %v", s.Msg())
		}
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the lazy one: %v", err)
	}
	for n := range 3 {
		if out := f.inOK(fmt.Sprint(n), "echo $((6*7))"); out != "42\n" {
			t.Errorf("%q", out)
		}
	}
	if _, err := f.client.RemoveContext(f.ctx(), &agentv1.RemoveContextRequest{Id: "0"}); err != nil {
		t.Fatal(err)
	}
	f.createContext("more", "bash", "")
	if defaults := (&Config{}); true {
		defaults.setDefaults()
		if defaults.MaxContexts != 32 {
			t.Errorf("limit %d", defaults.MaxContexts)
		}
	}
}

func TestContextErrorsAreClear(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Node = "/no/such/node" })
	f.createContext("c", "bash", "")
	for _, c := range []struct {
		req  *agentv1.CreateContextRequest
		code connect.Code
		says string
	}{
		{&agentv1.CreateContextRequest{Id: "c", Language: "python"}, connect.CodeAlreadyExists, `already a context "c"`},
		{&agentv1.CreateContextRequest{Id: "x", Language: "cobol"}, connect.CodeInvalidArgument, "cobol"},
		{&agentv1.CreateContextRequest{Id: "x", Language: "r"}, connect.CodeInvalidArgument, "R is not installed"},
		{&agentv1.CreateContextRequest{Id: "x", Language: "java"}, connect.CodeInvalidArgument, "Java is not installed"},
		{&agentv1.CreateContextRequest{Id: "x", Language: "typescript"}, connect.CodeInvalidArgument, "javascript"},
		{&agentv1.CreateContextRequest{Id: "x", Cwd: "/no/such"}, connect.CodeFailedPrecondition, "/no/such"},
		{&agentv1.CreateContextRequest{Id: "x", Cwd: "/etc/passwd"}, connect.CodeFailedPrecondition, "not a directory"},
		{&agentv1.CreateContextRequest{}, connect.CodeInvalidArgument, "id"},
		{&agentv1.CreateContextRequest{Id: "x", Language: "javascript"}, connect.CodeFailedPrecondition, "not installed"},
	} {
		_, err := f.client.CreateContext(f.ctx(), c.req)
		if connect.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.req, err)
		}
	}
	for _, c := range []struct {
		req  *agentv1.RunRequest
		code connect.Code
		says string
	}{
		{&agentv1.RunRequest{Context: "none", Code: "1"}, connect.CodeNotFound, `no context "none"`},
		{&agentv1.RunRequest{Context: "c", Language: "python", Code: "1"}, connect.CodeInvalidArgument, "runs bash"},
		{&agentv1.RunRequest{Context: "c", User: "nobody", Code: "1"}, connect.CodeInvalidArgument, "root"},
		{&agentv1.RunRequest{Context: "c", Code: "1", Env: map[string]string{"a.b": "1"}}, connect.CodeInvalidArgument, "a.b"},
		{&agentv1.RunRequest{Context: "c", Code: "a\x00b"}, connect.CodeInvalidArgument, "NUL"},
		{&agentv1.RunRequest{Language: "r", Code: "1"}, connect.CodeInvalidArgument, "R is not installed"},
		{&agentv1.RunRequest{Language: "java", Code: "1"}, connect.CodeInvalidArgument, "Java is not installed"},
	} {
		s, err := f.client.Run(f.ctx(), c.req)
		if err == nil {
			s.Receive()
			err = s.Err()
			s.Close()
		}
		if connect.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%v: %v", c.req, err)
		}
	}
	list, err := f.client.ListContexts(f.ctx(), &agentv1.ListContextsRequest{})
	if err != nil || len(list.GetContexts()) != 2 {
		t.Errorf("what failed was left behind: %v %v", list, err)
	}
	tr := f.run(&agentv1.RunRequest{Language: "javascript", Code: "1"})
	if tr.exit.GetReason() != agentv1.Reason_START_FAILED || !strings.Contains(tr.exit.GetMessage(), "not installed") {
		t.Errorf("javascript without node: %v", tr.exit)
	}
}

func TestReseedReachesEveryPythonContext(t *testing.T) {
	f := newFixture(t)
	f.createContext("c", "python", "")
	for _, id := range []string{"default", "c"} {
		f.inOK(id, "import random; random.seed(7); random.random()")
	}
	f.renew(Renewal{Reseed: true})
	var drawn []string
	for _, id := range []string{"default", "c"} {
		drawn = append(drawn, f.inOK(id, "print(random.random())"))
	}
	f.inOK("c", "random.seed(7); random.random()")
	fixed := f.inOK("c", "print(random.random())")
	if drawn[0] == fixed || drawn[1] == fixed || drawn[0] == drawn[1] {
		t.Errorf("drawn %q, the seed gives %q", drawn, fixed)
	}
}

func TestFirstCallSaysWhereTheInterpreterBegins(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	begin := func(code, dir string) string {
		t.Helper()
		s, err := f.client.Run(f.ctx(), &agentv1.RunRequest{Language: "python", Code: code, BeginIn: dir})
		if err != nil {
			t.Fatal(err)
		}
		out, exit := "", int32(-1)
		for s.Receive() {
			out += string(s.Msg().GetStdout())
			if e := s.Msg().GetExit(); e != nil {
				exit = e.Code
			}
		}
		if err := s.Err(); err != nil || exit != 0 {
			t.Fatalf("exit %d, %v", exit, err)
		}
		return out
	}
	where := "import os; print(os.getcwd(), end='')"
	if got := begin(where, dir); got != dir {
		t.Errorf("the first call is in %s", got)
	}
	if got := begin(where+"; os.chdir('/')", "/usr"); got != dir {
		t.Errorf("a second call was moved to %s", got)
	}
	if got := begin(where, dir); got != "/" {
		t.Errorf("where code has moved to: %s", got)
	}

	f = newFixture(t)
	start := begin(where, "")
	f = newFixture(t)
	if got := begin(where, "/no/such/directory"); got != start {
		t.Errorf("a directory that is not there: %s", got)
	}
	f = newFixture(t)
	begin("import os; os.chdir('/usr')", "")
	if got := begin(where, dir); got != "/usr" {
		t.Errorf("code that has moved by itself was moved to %s", got)
	}
	s, err := f.client.Run(f.ctx(), &agentv1.RunRequest{Language: "bash", Code: "true", BeginIn: dir})
	if err == nil {
		for s.Receive() {
			t.Errorf("event %v", s.Msg())
		}
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("bash: %v", err)
	}
}

package exec

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestPythonStateCarriesOver(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		f.pythonOK("import os\nx = 40\nfile = open('/dev/null')")
		want(t, "stdout", f.pythonOK("print(x + 2, file.closed, os.sep)"), "42 False /\n")
		want(t, "name", f.pythonOK("import sys; print(__name__, sys.argv, repr(sys.path[0]), sys.modules['__main__'].x)"), "__main__ [''] '' 40\n")
		want(t, "home", f.pythonOK("print(os.getcwd(), os.environ['HOME'], os.environ.get('TERM'))"), "/root /root None\n")
	})
}

func TestNoHelperNamesLeakIntoTheNamespace(t *testing.T) {
	f := newFixture(t, stdlib)
	want(t, "names", f.pythonOK("print(sorted(globals()))"),
		"['__builtins__', '__doc__', '__loader__', '__name__', '__package__', '__spec__']\n")
	ip := newFixture(t)
	got := ip.pythonOK("print([n for n in globals() if n in ('State','send','receive','SHELL','os','sys','json','main','call')])")
	want(t, "names", got, "[]\n")
	want(t, "get_ipython", ip.pythonOK("print(get_ipython() is not None)"), "True\n")
}

func TestLastExpressionIsAResultAndNotPrinted(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tests := []struct{ code, plain string }{
			{"1 + 1", "2"},
			{"x = 5\nx", "5"},
			{"'text'", "'text'"},
			{"[1, 2]", "[1, 2]"},
			{"None", ""},
			{"y = 3", ""},
			{"_ if False else {'k': 1}", "{'k': 1}"},
			{"import asyncio\nawait asyncio.sleep(0, 'awaited')", "'awaited'"},
		}
		for _, tt := range tests {
			tr := f.python(tt.code)
			if tr.stdout != "" || tr.exit.GetCode() != 0 {
				t.Errorf("%s: stdout %q, exit %v, %s", tt.code, tr.stdout, tr.exit, tr.stderr)
			}
			plain := ""
			if len(tr.results) > 0 {
				plain = tr.results[0].GetData()["text/plain"]
				if !tr.results[0].GetMain() || len(tr.results) > 1 {
					t.Errorf("%s: results %v", tt.code, tr.results)
				}
			}
			want(t, tt.code, plain, tt.plain)
		}
	})
}

func TestRichResults(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tr := f.python(`
class Rich:
    def __repr__(self): return 'plain'
    def _repr_html_(self): return '<b>rich</b>'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_json_(self): return {'a': 1}
    def _repr_latex_(self): return '$x$'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
print('a'); display(1); print('b'); display(2); print('c')
Rich()`)
		want(t, "order", tr.order, "a\n<1>b\n<2>c\n<plain>")
		if len(tr.results) != 3 || tr.results[0].GetMain() || tr.results[1].GetMain() || !tr.results[2].GetMain() {
			t.Fatalf("results %v, stderr %s", tr.results, tr.stderr)
		}
		data := tr.results[2].GetData()
		want(t, "html", data["text/html"], "<b>rich</b>")
		want(t, "png", strings.TrimSpace(data["image/png"]), base64.StdEncoding.EncodeToString([]byte("\x89PNG")))
		want(t, "json", data["application/json"], `{"a": 1}`)
		want(t, "latex", data["text/latex"], "$x$")
		want(t, "markdown", data["text/markdown"], "*m*")
		want(t, "svg", data["image/svg+xml"], "<svg/>")
	})
}

func TestMatplotlibFiguresBecomePNG(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tr := f.python("import matplotlib.pyplot as plt\nplt.plot([1,2]); plt.show()\nplt.figure(); plt.plot([3,4])\nNone")
		if tr.exit.GetCode() != 0 || tr.stderr != "" {
			t.Fatalf("%v %s", tr.exit, tr.stderr)
		}
		if len(tr.results) != 2 {
			t.Fatalf("%d results", len(tr.results))
		}
		for _, r := range tr.results {
			png, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.GetData()["image/png"]))
			if err != nil || !strings.HasPrefix(string(png), "\x89PNG") {
				t.Errorf("not a PNG: %v", err)
			}
		}
		tr = f.python("fig, ax = plt.subplots(); ax.plot([1]); display(fig); plt.close(fig)")
		if len(tr.results) != 1 || tr.results[0].GetMain() || tr.results[0].GetData()["image/png"] == "" {
			t.Errorf("figure that is displayed: %d results", len(tr.results))
		}
		tr = f.python("fig, ax = plt.subplots(); ax.plot([1]); fig")
		if len(tr.results) != 1 || !tr.results[0].GetMain() || tr.results[0].GetData()["image/png"] == "" {
			t.Errorf("figure as last expression: %d results", len(tr.results))
		}
	})
}

func TestUncaughtException(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tr := f.python("def f():\n    return 1/0\nf()")
		if tr.exit.GetCode() != 1 || tr.exit.GetReason() != agentv1.Reason_EXITED {
			t.Errorf("exit %v", tr.exit)
		}
		e := tr.exit.GetError()
		want(t, "name", e.GetName(), "ZeroDivisionError")
		want(t, "value", e.GetValue(), "division by zero")
		want(t, "stderr", tr.stderr, e.GetTraceback())
		for _, bad := range []string{"/proc/self", "run_code", "\x1b", "eval("} {
			if strings.Contains(tr.stderr, bad) {
				t.Errorf("traceback contains %q:\n%s", bad, tr.stderr)
			}
		}
		if !strings.Contains(tr.stderr, "return 1/0") {
			t.Errorf("no source line:\n%s", tr.stderr)
		}
		for code, name := range map[string]string{
			"def": "SyntaxError", "class E(Exception):\n  def __str__(self): raise ValueError\nraise E": "E",
			"def r(): r()\nr()": "RecursionError", "class R:\n  def __repr__(self): return 1/0\nR()": "ZeroDivisionError",
			"raise KeyboardInterrupt": "KeyboardInterrupt", "import asyncio\nasync def g(): raise OSError('x')\nawait g()": "OSError",
		} {
			tr := f.python(code)
			if name == "ZeroDivisionError" && tr.exit.GetCode() == 0 {
				continue // IPython reports it itself and has no result
			}
			want(t, code, tr.exit.GetError().GetName(), name)
			if strings.Contains(tr.stderr, "/proc/self") {
				t.Errorf("our frames in\n%s", tr.stderr)
			}
		}
		want(t, "afterwards", f.pythonOK("print('alive')"), "alive\n")
	})
}

func TestSystemExitIsTheExitCodeAndTheInterpreterLivesOn(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		f.pythonOK("x = 1")
		for code, exit := range map[string]int32{
			"import sys; sys.exit()": 0, "import sys; sys.exit(3)": 3, "exit(4)": 4, "quit()": 0,
			"raise SystemExit('bye')": 1, "import sys; sys.exit(-1)": 255,
		} {
			tr := f.python(code)
			if tr.exit.GetCode() != exit || tr.exit.GetError() != nil || tr.exit.GetReason() != agentv1.Reason_EXITED {
				t.Errorf("%s: %v %s", code, tr.exit, tr.stderr)
			}
			if strings.Contains(code, "bye") {
				want(t, code, tr.stderr, "bye\n")
			}
		}
		want(t, "state", f.pythonOK("import threading, sys\nt = threading.Thread(target=sys.exit); t.start(); t.join()\nprint(x)"), "1\n")
	})
}

func TestInputSaysThatStandardInputIsNotAvailable(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tr := f.python("input('name? ')")
		want(t, "name", tr.exit.GetError().GetName(), "EOFError")
		if !strings.Contains(tr.exit.GetError().GetValue(), "standard input is not available") {
			t.Errorf("%v", tr.exit)
		}
		if strings.Contains(tr.stderr, "no_input") {
			t.Errorf("our frame in %s", tr.stderr)
		}
		want(t, "stdin", f.pythonOK("import sys; print(repr(sys.stdin.read()))"), "''\n")
	})
}

func TestOutputOfCCodeAndChildrenIsCaptured(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		want(t, "os.system", f.pythonOK("import os\nprint('a'); os.system('echo b'); print('c')"), "a\nb\nc\n")
		want(t, "libc", f.pythonOK("import ctypes\n_ = ctypes.CDLL(None).printf(b'from C')"), "from C")
		want(t, "os.write", f.pythonOK("_ = os.write(1, b'\\xff\\xfe raw')"), "\xff\xfe raw")
		want(t, "subprocess", f.pythonOK("import subprocess\n_ = subprocess.run(['sh','-c','echo out'])"), "out\n")
	})
}

func TestOutputWithoutNewlineAndLoneSurrogates(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		want(t, "no newline", f.pythonOK("print('x', end='')"), "x")
		want(t, "surrogate", f.pythonOK("print('a\\ud800b')"), "a\\ud800b\n")
		tr := f.python("'\\ud800'")
		want(t, "result", tr.results[0].GetData()["text/plain"], "'\\ud800'")
		tr = f.python("raise ValueError('\\udfff')")
		want(t, "error", tr.exit.GetError().GetValue(), "\\udfff")
	})
}

func TestOrderOfStdoutAndStderr(t *testing.T) {
	f := newFixture(t, stdlib)
	tr := f.python("import sys\nfor i in range(50):\n    print('o', i)\n    print('e', i, file=sys.stderr)")
	var expect strings.Builder
	for i := range 50 {
		fmt.Fprintf(&expect, "o %d\ne %d\n", i, i)
	}
	want(t, "order", tr.order, expect.String())
}

func TestPerCallEnvironmentAndDirectoryDoNotLeak(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		dir := t.TempDir()
		f.pythonOK("import os\nos.environ['OLD'] = 'old'")
		tr := f.run(&agentv1.RunRequest{
			Language: "python", Cwd: dir, Env: map[string]string{"CALL": "1", "OLD": "new"},
			Code: "print(os.environ['CALL'], os.environ['OLD'], os.getcwd()); os.environ['OWN'] = 'stays'\nos.system('echo $CALL')",
		})
		want(t, "during", tr.stdout, "1 new "+dir+"\n1\n")
		want(t, "after", f.pythonOK("print(os.environ.get('CALL'), os.environ['OLD'], os.environ['OWN'], os.getcwd())"), "None old stays /root\n")
		tr = f.run(&agentv1.RunRequest{Language: "python", Cwd: "/no/such", Code: "print(1)"})
		if tr.exit.GetReason() != agentv1.Reason_START_FAILED || tr.stdout != "" {
			t.Errorf("no such directory: %v", tr.exit)
		}
	})
}

func TestSetEnvReachesTheLiveInterpreterAndPrograms(t *testing.T) {
	f := newFixture(t, stdlib)
	f.renew(Renewal{Env: map[string]string{"A": "1", "PATH": "/nowhere"}})
	show := "import os; print(os.environ.get('A'), os.environ.get('B'), os.environ['PATH'][:8])"
	want(t, "first", f.pythonOK(show), "1 None /nowhere\n")
	f.renew(Renewal{Env: map[string]string{"B": "2"}})
	want(t, "replaced", f.pythonOK(show), "None 2 /usr/loc\n")
	want(t, "bash", f.bash("echo $A,$B").stdout, ",2\n")
}

func TestSetEnvAndReseedReachCodeThatRuns(t *testing.T) {
	f := newFixture(t, stdlib)
	f.pythonOK("import os, time, random")
	b := f.openRun(&agentv1.RunRequest{Language: "python", Code: `
random.seed(7); first = random.getstate()
print('up', flush=True)
end = time.time() + 30
while not os.environ.get('LATE') or random.getstate() == first:
    if time.time() > end: raise TimeoutError
    time.sleep(0.01)
print(os.environ['LATE'])`})
	b.until("up")
	f.renew(Renewal{Env: map[string]string{"LATE": "here"}, Reseed: true})
	want(t, "stdout", b.rest().stdout, "up\nhere\n")
}

// A renewal that may wait does not wake the interpreter, and is known to the code
// of its next call all the same.
func TestRenewalForLaterComesWithTheNextCall(t *testing.T) {
	f := newFixture(t, stdlib)
	f.pythonOK("import os, random\nrandom.seed(1); first = random.getstate()")
	in := f.svc.contexts.first.interp
	f.renew(Renewal{Env: map[string]string{"A": "1"}, Later: true})
	f.renew(Renewal{Env: map[string]string{"B": "2"}, Reseed: true, Later: true})
	f.svc.contexts.first.mu.Lock()
	if !in.owed.reseed || len(in.env) != 0 {
		t.Errorf("the idle interpreter was told: owed %+v, it knows %v", in.owed, in.env)
	}
	f.svc.contexts.first.mu.Unlock()
	want(t, "next call", f.pythonOK("print(os.environ.get('A'), os.environ['B'], random.getstate() != first)"), "None 2 True\n")
	want(t, "call after it", f.pythonOK("first = random.getstate(); print(os.environ['B'])"), "2\n")
	want(t, "seeded once", f.pythonOK("print(random.getstate() == first)"), "True\n")
	want(t, "bash", f.bash("echo $A,$B").stdout, ",2\n")
}

func TestReseedGivesFreshRandomNumbers(t *testing.T) {
	f := newFixture(t)
	f.pythonOK("import random, numpy\nrandom.seed(1); numpy.random.seed(1)")
	before := f.pythonOK("s, n = random.getstate(), numpy.random.get_state(); print(random.random(), numpy.random.rand())")
	f.pythonOK("random.setstate(s); numpy.random.set_state(n)")
	f.renew(Renewal{Reseed: true})
	after := f.pythonOK("print(random.random(), numpy.random.rand())")
	b, a := strings.Fields(before), strings.Fields(after)
	if b[0] == a[0] || b[1] == a[1] {
		t.Errorf("before %q, after %q", before, after)
	}
}

// OpenSSL makes keys: siblings must not share them, also when they are to draw the same random numbers.
func TestEntropyReachesOpenSSLAndLeavesSeedsAlone(t *testing.T) {
	f := newFixture(t, stdlib)
	f.pythonOK(`
import random, ssl
random.seed(1); state = random.getstate()
calls = []
real = ssl.RAND_add
ssl.RAND_add = lambda data, entropy: (calls.append(len(data)), real(data, entropy))`)
	f.renew(Renewal{Entropy: true})
	want(t, "entropy", f.pythonOK("print(calls, random.getstate() == state)"), "[32] True\n")
	f.renew(Renewal{Entropy: true, Reseed: true})
	want(t, "reseed", f.pythonOK("print(calls, random.getstate() == state)"), "[32, 32] False\n")
}

// A machine that was forked is thawed after the renewal. No number that is drawn then is one that its
// siblings draw, in no thread: not even the first, although Python code in the main thread
// cannot run before the others have let it.
func TestReseedIsBeforeAnyDrawOfAStoppedInterpreter(t *testing.T) {
	const inThread = `
threading.Thread(target=draw).start()
while len(drawn) < 10: time.sleep(0.001)
print('up', flush=True)`
	for _, c := range []struct{ name, generator, where string }{
		{"random in a thread", "random.random", inThread},
		{"numpy in a thread", "numpy.random.random", inThread},
		{"random in a run", "random.random", "draw(lambda: print('up', flush=True))"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, stdlib)
			stop := filepath.Join(t.TempDir(), "stop")
			f.pythonOK(fmt.Sprintf(`
import numpy, os, random, threading, time
random.seed(1); numpy.random.seed(1)
drawn = []
def draw(up=lambda: None):
    left = -1 # draws to go, once it is to stop: there are some after that
    while left:
        drawn.append((time.time(), %s()))
        left -= 1
        if len(drawn) == 10: up()
        if left < 0 and not len(drawn) %% 64 and os.path.exists(%q): left = 64`, c.generator, stop))
			f.pythonOK("1") // the interpreter tells of its generators at the end of a call
			b := f.openRun(&agentv1.RunRequest{Language: "python", Code: c.where})
			b.until("up")
			in := f.svc.contexts.first.interp
			if err := in.proc.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it stands still", func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.proc.Pid))
				return err == nil && strings.Contains(string(stat), ") T ")
			})
			f.renew(Renewal{Reseed: true})
			at := float64(time.Now().UnixNano()) / 1e9
			if err := in.proc.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			b.rest()
			want(t, "drawn", f.pythonOK(fmt.Sprintf(`
for t in threading.enumerate():
    if t is not threading.current_thread(): t.join(20)
random.seed(1); numpy.random.seed(1)
old = {%s() for _ in drawn}
after = [r for t, r in drawn if t > %f]
print(len(drawn) > len(after) > 0, any(r in old for r in after))`, c.generator, at)), "True False\n")
		})
	}
}

func TestThreadsThatPrintAfterTheCallEndedComeFirstInTheNext(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		dir := t.TempDir()
		f.pythonOK(fmt.Sprintf(`
import threading, time, os
go, done = %q, %q
def late():
    while not os.path.exists(go): time.sleep(0.005)
    print('late')
    open(done, 'w').close()
threading.Thread(target=late).start()
print('now')`, dir+"/go", dir+"/done"))
		if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "late output", func() bool { _, err := os.Stat(dir + "/done"); return err == nil })
		want(t, "next", f.pythonOK("print('next')"), "late\nnext\n")
	})
}

func TestLateOutputIsBounded(t *testing.T) {
	var l late
	for range 40 {
		l.add(&agentv1.Event{Kind: &agentv1.Event_Stdout{Stdout: make([]byte, 64<<10)}})
	}
	var kept, dropped uint64
	for _, e := range l.take() {
		if e.GetTruncated() != nil {
			dropped += payload(e)
		} else {
			kept += payload(e)
		}
	}
	if kept > maxLate || kept+dropped != 40*64<<10 || dropped == 0 {
		t.Errorf("kept %d, dropped %d", kept, dropped)
	}
}

func TestBackgroundSubprocessOfTheInterpreterLivesOn(t *testing.T) {
	f := newFixture(t, stdlib)
	f.pythonOK("import subprocess\np = subprocess.Popen(['sleep', '60'])")
	want(t, "poll", f.pythonOK("print(p.poll()); p.kill(); p.wait()"), "None\n")
}

func TestForkAndMultiprocessingDoNotDisturbTheConnection(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		want(t, "fork", f.pythonOK("import os\npid = os.fork()\nif pid == 0: print('child', flush=True)\nelse: os.waitpid(pid, 0); print('parent')"), "child\nparent\n")
		for _, method := range []string{"fork", "spawn"} {
			code := fmt.Sprintf("import multiprocessing, math\nwith multiprocessing.get_context(%q).Pool(2) as p: print(p.map(math.factorial, [1,2,3]))", method)
			want(t, method, f.pythonOK(code), "[1, 2, 6]\n")
		}
		want(t, "subprocess", f.pythonOK("import subprocess\nprint(subprocess.run('ls -l /proc/self/fd', shell=True, capture_output=True, text=True, close_fds=False).stdout.count('socket:'))"), "0\n")
		want(t, "fork", f.pythonOK("import os\npid = os.fork()\nif pid == 0:\n  print(sum('socket:' in os.readlink(e.path) for e in os.scandir('/proc/self/fd') if os.path.lexists(e.path)), flush=True); os._exit(0)\n_ = os.waitpid(pid, 0)"), "0\n")
		want(t, "alive", f.pythonOK("print(1)"), "1\n")
	})
}

func TestMagicsAndShellCommandsAreCaptured(t *testing.T) {
	f := newFixture(t)
	want(t, "!", f.pythonOK("word = 'hi'\n!echo {word} $((1+1))"), "hi 2\n")
	want(t, "assign", f.pythonOK("x = !echo a b\nprint(x[0])"), "a b\n")
	want(t, "magic", f.pythonOK("%cd -q /tmp\nimport os\nprint(os.getcwd())"), "/tmp\n")
	want(t, "exit code", f.pythonOK("!exit 3\nprint(_exit_code)"), "3\n")
	want(t, "cell magic", f.pythonOK("%%bash\necho from bash"), "from bash\n")
	tr := f.python("%no_such_magic")
	if !strings.Contains(tr.stderr, "no_such_magic") {
		t.Errorf("%v %q", tr.exit, tr.stderr)
	}
	if tr := f.python("5;"); len(tr.results) != 0 {
		t.Errorf("semicolon: %v", tr.results)
	}
	if out := f.pythonOK("import time\n%time sum(range(10))"); !strings.Contains(out, "Wall time") {
		t.Errorf("%%time: %q", out)
	}
}

func TestModuleInstalledAMomentAgoIsImportable(t *testing.T) {
	f := newFixture(t, stdlib)
	dir := t.TempDir()
	f.pythonOK(fmt.Sprintf("import sys; sys.path.append(%q)\ntry:\n  import brand_new\nexcept ImportError: pass", dir))
	if err := os.WriteFile(filepath.Join(dir, "brand_new.py"), []byte("v = 7"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, "import", f.pythonOK("import brand_new; print(brand_new.v)"), "7\n")
}

func TestHugeCodeAndHugeResult(t *testing.T) {
	f := newFixture(t, stdlib)
	code := "s = '" + strings.Repeat("x", 4<<20) + "'\nprint(len(s))"
	want(t, "code", f.pythonOK(code), fmt.Sprintln(4<<20))
	tr := f.python("s")
	if got := len(tr.results[0].GetData()["text/plain"]); got != 4<<20+2 {
		t.Errorf("result of %d bytes", got)
	}
	tr = f.python("s * 5")
	if tr.truncated == 0 || len(tr.results) != 1 || tr.exit.GetCode() != 0 {
		t.Errorf("truncated %d, %v", tr.truncated, tr.exit)
	}
}

func TestEndlessOutputDoesNotBlockOrGrow(t *testing.T) {
	f := newFixture(t, stdlib, func(c *Config) { c.SpoolPerRun = 2 << 20; c.MemoryPerRun = 64 << 10 })
	b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: "endless", Code: "while True: print('y' * 1000)"})
	b.until("y")
	r, err := f.svc.find("endless")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the oldest output is dropped", func() bool {
		r.journal.appending.Lock()
		defer r.journal.appending.Unlock()
		if r.journal.spooled+r.journal.rolled.bytes > 2<<20 {
			t.Fatalf("%d bytes are kept", r.journal.spooled+r.journal.rolled.bytes)
		}
		return r.journal.rolled.lost > 1<<20
	})
	if err := f.signal("endless", int32(unix.SIGINT)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call has ended", func() bool { _, exit := r.journal.state(); return exit != nil })
	if _, exit := r.journal.state(); exit.GetReason() != agentv1.Reason_INTERRUPTED {
		t.Errorf("%v", exit)
	}
	want(t, "next", f.pythonOK("print(1)"), "1\n")
}

func BenchmarkHotPrint(b *testing.B) {
	f := newFixture(b)
	f.pythonOK("print(1)")
	for b.Loop() {
		f.python("print(1)")
	}
}

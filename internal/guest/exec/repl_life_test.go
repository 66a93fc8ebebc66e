package exec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func TestTimeoutInterruptsTheCodeAndKeepsState(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		f.pythonOK("import time, subprocess\nx = 5")
		for _, code := range []string{"time.sleep(60)", "while True: pass", "subprocess.call(['sleep', '60'])", "import asyncio\nawait asyncio.sleep(60)"} {
			tr := f.run(&agentv1.RunRequest{Language: "python", Code: code, TimeoutMillis: 150})
			if tr.exit.GetReason() != agentv1.Reason_TIMEOUT || tr.exit.GetCode() != 130 {
				t.Errorf("%s: %v", code, tr.exit)
			}
			if !strings.Contains(tr.exit.GetMessage(), "kept its state") {
				t.Errorf("%s: message %q", code, tr.exit.GetMessage())
			}
		}
		want(t, "state", f.pythonOK("print(x)"), "5\n")
	})
}

func TestTimeoutKillsCodeThatIgnoresTheInterrupt(t *testing.T) {
	f := newFixture(t, stdlib, func(c *Config) { c.ReplGrace = 200 * time.Millisecond })
	tr := f.run(&agentv1.RunRequest{Language: "python", TimeoutMillis: 100, Code: `
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
time.sleep(60)`})
	if tr.exit.GetReason() != agentv1.Reason_TIMEOUT || tr.exit.GetSignal() != 9 || !strings.Contains(tr.exit.GetMessage(), "restarted") {
		t.Errorf("%v", tr.exit)
	}
	tr = f.python("print('fresh')")
	want(t, "stdout", tr.stdout, "fresh\n")
	want(t, "notice", tr.stderr, languages["python"].lost)
	want(t, "notice once", f.python("print(1)").stderr, "")
}

func TestSignalInterruptsARunAndNotTheNext(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		f.pythonOK("import time")
		b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: "r1", Code: "print('up')\ntime.sleep(60)"})
		b.until("up")
		if err := f.signal("r1", int32(unix.SIGINT)); err != nil {
			t.Fatal(err)
		}
		tr := b.rest()
		if tr.exit.GetReason() != agentv1.Reason_INTERRUPTED || tr.exit.GetError().GetName() != "KeyboardInterrupt" {
			t.Errorf("%v", tr.exit)
		}
		if err := f.signal("r1", int32(unix.SIGINT)); err == nil {
			t.Error("signal to an ended run succeeded")
		}
		want(t, "next", f.pythonOK("print(1)"), "1\n")
	})
}

// An interrupt at the very moment a call ends must hit that call or nothing.
func TestLateInterruptNeverHitsTheNextCallOrTheInterpreter(t *testing.T) {
	f := newFixture(t, stdlib)
	pid := f.python("x = 1").started.GetPid()
	for i := range 300 {
		id := fmt.Sprint("run", i)
		b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: id, Code: "x"})
		_ = f.signal(id, int32(unix.SIGINT)) // it may have ended
		_ = f.signal(id, int32(unix.SIGINT))
		first := b.rest()
		if first.exit.GetCode() != 0 && first.exit.GetReason() != agentv1.Reason_INTERRUPTED {
			t.Fatalf("round %d: %v", i, first.exit)
		}
		next := f.python("x")
		if next.exit.GetCode() != 0 || next.started.GetPid() != pid {
			t.Fatalf("round %d: the next call got %v, stderr %q", i, next.exit, next.stderr)
		}
	}
}

func TestCallsQueueInOrderAndASignalRemovesAWaitingOne(t *testing.T) {
	f := newFixture(t, stdlib)
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: "first", Code: fmt.Sprintf(
		"import os, time\nlog = ['first']\nprint('up')\nwhile not os.path.exists(%q): time.sleep(0.005)", gate)})
	b.until("up")
	results := make(chan *transcript, 2)
	for i, id := range []string{"second", "third"} {
		go func() {
			results <- f.run(&agentv1.RunRequest{Language: "python", RunId: id, Code: "log.append('" + id + "')"})
		}()
		waitQueued(f, i+1)
	}
	if err := f.signal("second", int32(unix.SIGINT)); err != nil {
		t.Fatal(err)
	}
	if tr := <-results; tr.exit.GetReason() != agentv1.Reason_INTERRUPTED || tr.started != nil {
		t.Errorf("second: %v", tr.exit)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.rest()
	<-results
	want(t, "log", f.pythonOK("print(log)"), "['first', 'third']\n")
}

func waitQueued(f *fixture, n int) {
	f.t.Helper()
	eventually(f.t, "calls wait", func() bool {
		f.svc.contexts.first.mu.Lock()
		defer f.svc.contexts.first.mu.Unlock()
		return len(f.svc.contexts.first.queue) == n
	})
}

func TestClientThatLeavesWhileQueuedLeavesTheQueue(t *testing.T) {
	f := newFixture(t, stdlib)
	b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: "long", Code: "import time\nprint('up')\ntime.sleep(60)"})
	b.until("up")
	ctx, cancel := context.WithCancel(f.ctx())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, err := f.client.Run(ctx, &agentv1.RunRequest{Language: "python", RunId: "waiting", Code: "print('never')"})
		if err == nil {
			for s.Receive() {
			}
			s.Close()
		}
	}()
	waitQueued(f, 1)
	cancel()
	<-done
	waitQueued(f, 0)
	if err := f.signal("long", int32(unix.SIGINT)); err != nil {
		t.Fatal(err)
	}
	b.rest()
	tr := f.collect(f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "waiting"}))
	if tr.exit.GetReason() != agentv1.Reason_INTERRUPTED || tr.stdout != "" {
		t.Errorf("%v %q", tr.exit, tr.stdout)
	}
}

func TestAbandonedCallGoesOnAndCanBeInterrupted(t *testing.T) {
	f := newFixture(t, stdlib)
	b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: "lost", Code: "import time\nprint('up')\ntime.sleep(60)"})
	b.until("up")
	b.stop()
	if err := f.signal("lost", int32(unix.SIGINT)); err != nil {
		t.Fatal(err)
	}
	want(t, "next", f.pythonOK("print('free')"), "free\n")
	tr := f.collect(f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "lost"}))
	if tr.exit.GetReason() != agentv1.Reason_INTERRUPTED || tr.stdout != "up\n" {
		t.Errorf("%v %q", tr.exit, tr.stdout)
	}
}

func TestInterpreterDeathIsReportedAndLaterCallsWork(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		for code, check := range map[string]func(*agentv1.Exit) bool{
			"import os; print('last words', flush=True); os._exit(3)":                   func(e *agentv1.Exit) bool { return e.GetCode() == 3 && e.GetSignal() == 0 },
			"import ctypes; print('last words', flush=True); ctypes.string_at(0)":       func(e *agentv1.Exit) bool { return e.GetSignal() == int32(unix.SIGSEGV) && e.GetCode() == 139 },
			"import os; print('last words', flush=True); os.kill(os.getpid(), 9)":       func(e *agentv1.Exit) bool { return e.GetSignal() == 9 },
			"import os; print('last words', flush=True); os.closerange(3, 4096)\nx = 1": func(e *agentv1.Exit) bool { return e.GetCode() != 0 || e.GetSignal() != 0 },
		} {
			f.pythonOK("x = 1")
			tr := f.python(code)
			if tr.exit.GetReason() != agentv1.Reason_INTERPRETER_DIED || !check(tr.exit) {
				t.Errorf("%s: %v", code, tr.exit)
			}
			want(t, code, tr.stdout, "last words\n")
			tr = f.python("print('x' in globals())")
			want(t, "fresh", tr.stdout, "False\n")
			want(t, "notice", tr.stderr, languages["python"].lost)
		}
	})
}

func TestInterpreterDeathBetweenCallsIsTold(t *testing.T) {
	f := newFixture(t, stdlib)
	pid := int(f.python("x = 1").started.GetPid())
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "new interpreter", func() bool {
		f.svc.contexts.first.mu.Lock()
		defer f.svc.contexts.first.mu.Unlock()
		in := f.svc.contexts.first.interp
		return in != nil && in.ready && in.proc.Pid != pid
	})
	tr := f.python("print(1)")
	want(t, "notice", tr.stderr, languages["python"].lost)
}

func TestOOMKilledInterpreterIsOutOfMemory(t *testing.T) {
	counter := filepath.Join(t.TempDir(), "memory.events")
	write := func(n int) {
		if err := os.WriteFile(counter, []byte(fmt.Sprintf("low 0\noom 1\noom_kill %d\n", n)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(2)
	f := newFixture(t, stdlib)
	f.svc.oom = oomCounter{counter, "oom_kill"}
	b := f.openRun(&agentv1.RunRequest{Language: "python", Code: "import time\nprint('up')\ntime.sleep(60)"})
	b.until("up")
	write(3)
	if err := unix.Kill(int(b.tr.started.GetPid()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if tr := b.rest(); tr.exit.GetReason() != agentv1.Reason_OUT_OF_MEMORY {
		t.Errorf("%v", tr.exit)
	}
}

func TestSigkillRestartsTheInterpreter(t *testing.T) {
	f := newFixture(t, stdlib)
	b := f.openRun(&agentv1.RunRequest{Language: "python", RunId: "k", Code: "print('up', flush=True)\nwhile True: pass"})
	b.until("up")
	if err := f.signal("k", int32(unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	if tr := b.rest(); tr.exit.GetReason() != agentv1.Reason_SIGNALED || tr.exit.GetCode() != 137 {
		t.Errorf("%v", tr.exit)
	}
	want(t, "next", f.pythonOK("print(1)"), "1\n")
}

func TestInterpreterThatCannotStartFailsTheCall(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Python = "/no/such/python" })
	if tr := f.python("1"); tr.exit.GetReason() != agentv1.Reason_START_FAILED || tr.exit.GetCode() != 127 {
		t.Errorf("%v", tr.exit)
	}
	f = newFixture(t, func(c *Config) { c.Python = "/bin/false" })
	if tr := f.python("1"); tr.exit.GetReason() != agentv1.Reason_START_FAILED {
		t.Errorf("%v", tr.exit)
	}
	if err := f.svc.StartREPL(f.ctx()); err == nil {
		t.Error("StartREPL succeeded")
	}
}

func TestBrokenIPythonDoesNotTakeTheInterpreterWithIt(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "IPython"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "IPython", "__init__.py"), []byte("raise RuntimeError('broken')"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *Config) { c.PythonEnv = map[string]string{"PYTHONPATH": dir} })
	tr := f.python("1 + 1")
	if len(tr.results) != 1 || !strings.Contains(tr.stderr, "goes on without it") {
		t.Errorf("%v, stderr %q", tr.exit, tr.stderr)
	}
	want(t, "next", f.pythonOK("print(2)"), "2\n")
}

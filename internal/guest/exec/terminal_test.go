package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// onPty is a request for a shell script on a terminal of 80 columns and 24 rows.
func onPty(id, script string) *agentv1.StartRequest {
	return &agentv1.StartRequest{RunId: id, Argv: []string{"bash", "-c", script}, Pty: &agentv1.PtySize{Columns: 80, Rows: 24}}
}

// shell is a request for an interactive shell without anybody's settings.
func shell(id string) *agentv1.StartRequest {
	r := onPty(id, "")
	r.Argv = []string{"bash", "--norc", "--noprofile", "-i"}
	r.Env = map[string]string{"PS1": "ready> ", "HISTFILE": ""}
	return r
}

func (f *fixture) typeIn(id, text string) {
	f.t.Helper()
	if n, err := f.input(id, false, text); err != nil || n != uint64(len(text)) {
		f.t.Fatalf("type %q: %d %v", text, n, err)
	}
}

func (f *fixture) resize(id string, columns, rows uint32) error {
	_, err := f.client.Resize(f.ctx(), &agentv1.ResizeRequest{RunId: id, Pty: &agentv1.PtySize{Columns: columns, Rows: rows}})
	return err
}

// number reads on until a line "WORD NUMBER" is whole. What was typed is shown too,
// but not at the beginning of a line.
func (b *background) number(word string) int {
	b.f.t.Helper()
	line := regexp.MustCompile(`[\r\n]` + word + ` (\d+)\r\n`)
	for {
		if m := line.FindStringSubmatch(b.tr.stdout); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				b.f.t.Fatal(err)
			}
			return n
		}
		if !b.s.Receive() {
			b.f.t.Fatalf("the stream ended: %q", b.tr.stdout)
		}
		b.tr.add(b.f.t, b.s.Msg(), 0)
		b.tr.settle()
	}
}

func gone(pid int) func() bool {
	return func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
}

func TestTerminalIsThereBeforeTheProgram(t *testing.T) {
	f := newFixture(t)
	tr := f.start(onPty("a", `tty; stty size; echo "$TERM"; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; echo err >&2
		ps -o pid=,sid=,tpgid= -p $$ | awk -v me=$$ '{print ($1==me && $2==me && $3==me) ? "leader" : "none: " $0}'; echo x >/dev/tty; exit 7`))
	lines := strings.Split(tr.stdout, "\r\n")
	if !strings.HasPrefix(lines[0], "/dev/pts/") {
		t.Errorf("its terminal is %q", lines[0])
	}
	want(t, "output", strings.Join(lines[1:], ","), "24 80,xterm-256color,all,err,leader,x,")
	if tr.exit.GetCode() != 7 || tr.exit.GetReason() != agentv1.Reason_EXITED || tr.stderr != "" {
		t.Errorf("%v, stderr %q", tr.exit, tr.stderr)
	}
	f.renew(Renewal{Env: map[string]string{"TERM": "vt100", "OF": "sandbox"}})
	want(t, "TERM of the sandbox", f.start(onPty("b", `echo $TERM $OF`)).stdout, "vt100 sandbox\r\n")
	own := onPty("c", `echo $TERM`)
	own.Env = map[string]string{"TERM": "linux"}
	want(t, "TERM of the call", f.start(own).stdout, "linux\r\n")
	if out := f.start(&agentv1.StartRequest{RunId: "d", Argv: []string{"sh", "-c", "tty; echo ${TERM-none}"}}).stdout; !strings.HasPrefix(out, "not a tty\n") {
		t.Errorf("without a terminal: %q", out)
	}
}

func TestResizeReachesTheForeground(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(shell("s"))
	b.until("ready> ")
	// A job of its own group, which the shell has put in the foreground.
	f.typeIn("s", `bash -c 'trap "stty size; exit 3" WINCH; echo job; while :; do sleep 0.02; done'; echo code $?`+"\r")
	b.until("job\r\n")
	if err := f.resize("s", 132, 50); err != nil {
		t.Fatal(err)
	}
	b.until("50 132\r\ncode 3\r\n")
	f.typeIn("s", "stty size; exit 5\r")
	tr := b.rest()
	if !strings.HasSuffix(tr.stdout, "50 132\r\nexit\r\n") || tr.exit.GetCode() != 5 {
		t.Errorf("%q %v", tr.stdout, tr.exit)
	}
	for _, c := range []struct {
		id            string
		columns, rows uint32
		code          connect.Code
	}{
		{"s", 80, 24, connect.CodeFailedPrecondition}, // ended
		{"none", 80, 24, connect.CodeNotFound},
		{"s", 0, 24, connect.CodeInvalidArgument},
		{"s", 80, 0, connect.CodeInvalidArgument},
		{"s", 70000, 24, connect.CodeInvalidArgument},
	} {
		if err := f.resize(c.id, c.columns, c.rows); connect.CodeOf(err) != c.code {
			t.Errorf("%s to %dx%d: %v", c.id, c.columns, c.rows, err)
		}
	}
	pipes := f.openStart(&agentv1.StartRequest{RunId: "pipes", Argv: []string{"sh", "-c", "echo up; exec sleep 60"}})
	pipes.until("up")
	if err := f.resize("pipes", 80, 24); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "no terminal") {
		t.Errorf("a run without a terminal: %v", err)
	}
	if err := f.signal("pipes", 9); err != nil {
		t.Error(err)
	}
	pipes.rest()
	for _, size := range []*agentv1.PtySize{{}, {Columns: 70000, Rows: 1}} {
		r := onPty("bad", "true")
		r.Pty = size
		s, err := f.client.Start(f.ctx(), r)
		if err == nil {
			for s.Receive() {
			}
			err = s.Err()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("start with %v: %v", size, err)
		}
	}
}

func TestTypedInterruptReachesTheForegroundJobAndNotTheShell(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(shell("s"))
	b.until("ready> ")
	f.typeIn("s", "sh -c 'echo child $$; exec sleep 60'\r")
	child := b.number("child")
	f.typeIn("s", "\x03")
	b.until("^C")
	eventually(t, "the job is gone", gone(child))
	f.typeIn("s", "echo code $?\r")
	b.until("code 130\r\n")
	f.typeIn("s", "\x04") // Ctrl-D on an empty line ends a shell
	if e := b.rest().exit; e.GetReason() != agentv1.Reason_EXITED {
		t.Errorf("%v", e)
	}
}

func TestKilledTerminalIsHungUp(t *testing.T) {
	for _, c := range []struct {
		name string
		sig  unix.Signal
	}{{"SIGKILL", unix.SIGKILL}, {"SIGHUP", unix.SIGHUP}} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			b := f.openStart(shell("s"))
			b.until("ready> ")
			// One in the background, one in the foreground; each in its own group.
			f.typeIn("s", "sleep 61 & echo bg $!; sh -c 'echo child $$; exec sleep 60'\r")
			child := b.number("child")
			if err := f.signal("s", int32(c.sig)); err != nil {
				t.Fatal(err)
			}
			e := b.rest().exit
			if c.sig == unix.SIGKILL && (e.GetSignal() != 9 || e.GetReason() != agentv1.Reason_SIGNALED) {
				t.Errorf("%v", e)
			}
			eventually(t, "the foreground job is gone", gone(child))
			bg := b.number("bg")
			if c.sig == unix.SIGHUP { // a shell passes it on to all its jobs
				eventually(t, "the background job is gone", gone(bg))
			} else if err := unix.Kill(bg, unix.SIGKILL); err != nil {
				t.Errorf("the background job: %v", err)
			}
		})
	}
}

func TestTimeoutEndsAnInteractiveShellWithItsJob(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.KillGrace = 300 * time.Millisecond })
	for _, job := range []string{"echo child $$; exec sleep 60", `trap "" HUP INT; echo child $$; while :; do sleep 0.02; done`} {
		r := shell("")
		r.RunId, r.TimeoutMillis = "", 1500
		r.Argv = []string{"bash", "--norc", "--noprofile", "-i", "-c", fmt.Sprintf("trap '' HUP; echo; sh -c '%s'; :", job)}
		b := f.openStart(r)
		child := b.number("child")
		if e := b.rest().exit; e.GetReason() != agentv1.Reason_TIMEOUT {
			t.Errorf("%v", e)
		}
		eventually(t, "the job is gone", gone(child))
	}
}

func TestDaemonThatHoldsTheTerminalDoesNotKeepTheRunOpenAndLivesOn(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	start := time.Now()
	tr := f.start(onPty("a", fmt.Sprintf(
		`trap '' HUP; (while [ ! -e %[1]s/go ]; do sleep 0.02; done; echo late; echo more; echo $? > %[1]s/status) & echo main; exit 4`, dir)))
	want(t, "stdout", tr.stdout, "main\r\n")
	if took := time.Since(start); took > 10*time.Second || tr.exit.GetCode() != 4 {
		t.Errorf("took %v, %v", took, tr.exit)
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon wrote to its terminal", func() bool {
		b, _ := os.ReadFile(dir + "/status")
		return string(b) == "0\n"
	})
}

func TestProgramMayCloseAndReopenItsTerminal(t *testing.T) {
	f := newFixture(t)
	tr := f.start(onPty("a", `echo one; exec <&- >&- 2>&-; sleep 0.2; exec >/dev/tty; echo two`))
	want(t, "stdout", tr.stdout, "one\r\ntwo\r\n")
}

func TestTerminalOutputIsComplete(t *testing.T) {
	f := newFixture(t)
	const n = 300_000
	tr := f.start(onPty("a", fmt.Sprintf("seq 1 %d; exit 2", n)))
	lines := strings.Split(tr.stdout, "\r\n")
	if len(lines) != n+1 || lines[n-1] != strconv.Itoa(n) || lines[n] != "" || tr.exit.GetCode() != 2 {
		t.Errorf("%d lines, the last %q, %v", len(lines), lines[max(0, len(lines)-2)], tr.exit)
	}
	for i := range 100 { // what was written right before the end is there
		if tr := f.start(onPty("", fmt.Sprintf("printf end-%d", i))); tr.stdout != fmt.Sprintf("end-%d", i) {
			t.Fatalf("round %d: %q", i, tr.stdout)
		}
	}
	// No character is split, and bytes that are none pass.
	tr = f.start(onPty("b", `printf 'a\xe2\x82'; sleep 0.1; printf '\xacb\xff'`))
	want(t, "bytes", tr.stdout, "a€b\xff")
	for _, e := range tr.events {
		if incompleteTail(e.GetStdout()) != 0 {
			t.Errorf("chunk %q splits a character", e.GetStdout())
		}
	}
}

func TestEndOfInputIsTyped(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct{ script, typed, want string }{
		{"stty -echo; echo up; cat; echo end", "line\n", "up\r\nline\r\nend\r\n"},
		{"stty -echo; echo up; cat; echo; echo end", "half", "up\r\nhalf\r\nend\r\n"}, // a line that has begun
		{"stty -echo; echo up; cat; echo end", "", "up\r\nend\r\n"},
		{"stty -echo eof ^X; echo up; cat; echo end", "a\n", "up\r\na\r\nend\r\n"},                            // whatever character it is
		{"stty -echo; echo up; cat; read x; echo got $x", "a\n", "up\r\na\r\ngot more\r\n"},                   // more can follow
		{"stty raw -echo; echo up; head -c 2 | od -An -tx1; stty sane; echo end", "x", "up\n 78 04\nend\r\n"}, // raw: the program's affair
	} {
		b := f.openStart(onPty("", c.script))
		b.until("up")
		id := b.tr.started.GetRunId()
		if _, err := f.input(id, true, c.typed); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(c.script, "read x") {
			b.until("a\r\n")
			f.typeIn(id, "more\n")
		}
		tr := b.rest()
		want(t, c.script, tr.stdout, c.want)
	}
}

func TestTerminalThatNobodyReadsHoldsItsWriterBackUntilTheEnd(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(onPty("s", "stty raw -echo; echo up; sleep 60"))
	b.until("up")
	done := make(chan error, 1)
	go func() {
		_, err := f.input("s", false, strings.Repeat("x", 1<<20))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("a megabyte went into a terminal that nobody reads: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := f.signal("s", 9); err != nil {
		t.Fatal(err)
	}
	b.rest()
	select {
	case err := <-done:
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("%v", err)
		}
	case <-time.After(limit):
		t.Fatal("the writer waits for ever")
	}
}

func TestLatestSkipsWhatWas(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(onPty("s", "stty -echo; echo before; while read x && [ $x != end ]; do echo after; done; exit 3"))
	b.until("before\r\n")
	s, err := f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "s", FromSeq: 99, Latest: true})
	if err != nil {
		t.Fatal(err)
	}
	// The call has been answered, so nothing from here on is missed.
	f.typeIn("s", "x\nend\n")
	b.rest()
	if tr := f.collectFrom(s, nil, 2); tr.stdout != "after\r\n" || tr.exit.GetCode() != 3 {
		t.Errorf("%q %v", tr.stdout, tr.exit)
	}
	// After its end there is the end.
	ended := f.collectLatest("s")
	if len(ended) != 1 || ended[0].GetExit().GetCode() != 3 {
		t.Errorf("%v", ended)
	}
}

func (f *fixture) collectLatest(id string) (events []*agentv1.Event) {
	f.t.Helper()
	s, err := f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: id, Latest: true})
	if err != nil {
		f.t.Fatal(err)
	}
	defer s.Close()
	for s.Receive() {
		if s.Msg().GetKeepAlive() == nil {
			events = append(events, s.Msg())
		}
	}
	if err := s.Err(); err != nil {
		f.t.Fatal(err)
	}
	return events
}

func TestListTellsHowARunWasStarted(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	r := onPty("s", "echo up; read x")
	r.Tag, r.Cwd, r.Env, r.Detach = "my terminal", dir, map[string]string{"A": "b"}, true
	b := f.openStart(r)
	b.until("up")
	info := f.info("s")
	if info.GetTag() != "my terminal" || !info.GetPty() || info.GetCwd() != dir || info.GetUser() != "root" || info.GetEnv()["A"] != "b" || !info.GetDetached() {
		t.Errorf("%v", info)
	}
	f.typeIn("s", "\n")
	b.rest()
	if info := f.info("s"); info.GetExit() == nil || info.GetTag() != "my terminal" || info.GetEnv() != nil {
		t.Errorf("after its end: %v", info)
	}
	r = onPty("", "true")
	r.Tag = strings.Repeat("x", 300)
	s, err := f.client.Start(f.ctx(), r)
	if err == nil {
		for s.Receive() {
		}
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a long tag: %v", err)
	}
}

func (f *fixture) info(id string) *agentv1.RunInfo {
	f.t.Helper()
	res, err := f.client.List(f.ctx(), &agentv1.ListRequest{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range res.GetRuns() {
		if r.GetRunId() == id {
			return r
		}
	}
	f.t.Fatalf("no run %s in %v", id, res.GetRuns())
	return nil
}

// TestEveryKindOfStartIsTheWholeUser starts a shell in each way there is as a user of
// its own, who has a home that is closed to others.
func TestEveryKindOfStartIsTheWholeUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become somebody else")
	}
	dir, err := os.MkdirTemp("", "users") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	home := filepath.Join(dir, "mia")
	for _, step := range []error{os.Chmod(dir, 0o755), os.Mkdir(home, 0o700), os.Chown(home, 4711, 4712)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	for file, text := range map[string]string{
		passwd: fmt.Sprintf("root:x:0:0:r:/root:/bin/bash\nmia:x:4711:4712:M:%s:/bin/bash\n", home),
		group:  "root:x:0:\nmia:x:4712:\nsudo:x:27:mia\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := newFixture(t, func(c *Config) { c.Users = Users{passwd, group} })
	const script = `id -u; id -g; id -G; echo $HOME $USER $LOGNAME $SHELL; pwd; touch made; stat -c '%u %g %a' made; rm made`
	for kind, start := range map[string]func() *transcript{
		"bash": func() *transcript { return f.run(&agentv1.RunRequest{Language: "bash", User: "mia", Code: script}) },
		"program": func() *transcript {
			return f.start(&agentv1.StartRequest{Argv: []string{"sh", "-c", script}, User: "mia"})
		},
		"by number": func() *transcript {
			return f.start(&agentv1.StartRequest{Argv: []string{"sh", "-c", script}, User: "4711"})
		},
		"terminal": func() *transcript {
			r := onPty("", script+"; stat -Lc %u /proc/self/fd/0 >&2; echo x >$(tty)")
			r.User = "mia"
			return f.start(r)
		},
	} {
		tr := start()
		out := fmt.Sprintf("4711,4712,4712 27,%[1]s mia mia /bin/bash,%[1]s,4711 4712 644,", home)
		if kind == "terminal" {
			out += "4711,x," // it is the user's own
		}
		want(t, kind, strings.Join(strings.Split(strings.ReplaceAll(tr.stdout, "\r", ""), "\n"), ","), out)
		if tr.exit.GetCode() != 0 {
			t.Errorf("%s: %v %s", kind, tr.exit, tr.stderr)
		}
	}
}

func TestCloseEndsTerminals(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(shell("s"))
	b.until("ready> ")
	f.typeIn("s", "sh -c 'echo child $$; exec sleep 60'\r")
	child := b.number("child")
	f.svc.Close()
	if e := b.rest().exit; e.GetSignal() != 9 {
		t.Errorf("%v", e)
	}
	eventually(t, "the job is gone", gone(child))
}

func TestTerminalGoesOnWithoutAClient(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MemoryPerRun = 32 << 10 })
	b := f.openStart(onPty("s", "echo up; seq 1 100000; exit 6"))
	b.until("up")
	b.stop() // and nobody reads what comes
	tr := f.collect(f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "s"}))
	if !strings.HasSuffix(tr.stdout, "\r\n100000\r\n") || strings.Count(tr.stdout, "\r\n") != 100001 || tr.exit.GetCode() != 6 {
		t.Errorf("%d lines, %v", strings.Count(tr.stdout, "\r\n"), tr.exit)
	}
}

func TestStartsThatAreCancelledAtOnceLeaveNothingStuck(t *testing.T) {
	f := newFixture(t)
	for i := range 40 {
		r := onPty(fmt.Sprint("t", i), "sleep 60")
		if i%2 == 0 {
			r.Pty = nil
		}
		ctx, cancel := context.WithTimeout(f.ctx(), time.Duration(i)*200*time.Microsecond)
		if s, err := f.client.Start(ctx, r); err == nil {
			for s.Receive() {
			}
			s.Close()
		}
		cancel()
	}
	res, err := f.client.List(f.ctx(), &agentv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range res.GetRuns() { // those that were started go on, and can be ended
		eventually(t, "it takes a signal", func() bool {
			err := f.signal(r.GetRunId(), 9)
			return err == nil || connect.CodeOf(err) == connect.CodeFailedPrecondition && f.info(r.GetRunId()).GetExit() != nil
		})
		if tr := f.collect(f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: r.GetRunId()})); tr.exit.GetSignal() != 9 {
			t.Errorf("%s: %v", r.GetRunId(), tr.exit)
		}
	}
}

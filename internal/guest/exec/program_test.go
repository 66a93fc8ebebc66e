package exec

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func TestExitCodesAndSignalsAreWhatTheKernelSaid(t *testing.T) {
	f := newFixture(t)
	tests := []struct {
		script string
		code   int32
		signal int32
		reason agentv1.Reason
	}{
		{"true", 0, 0, agentv1.Reason_EXITED},
		{"exit 7", 7, 0, agentv1.Reason_EXITED},
		{"exit 255", 255, 0, agentv1.Reason_EXITED},
		{"kill -TERM $$", 143, 15, agentv1.Reason_SIGNALED},
		{"kill -KILL $$", 137, 9, agentv1.Reason_SIGNALED},
	}
	for _, tt := range tests {
		e := f.bash(tt.script).exit
		if e.GetCode() != tt.code || e.GetSignal() != tt.signal || e.GetReason() != tt.reason {
			t.Errorf("%s: %v", tt.script, e)
		}
	}
	for i := range 50 { // a reaper that races with the waiter loses some of these
		if e := f.bash(fmt.Sprint("exit ", i)).exit; e.GetCode() != int32(i) {
			t.Fatalf("exit %d: %v", i, e)
		}
	}
}

func TestStartFailuresAreClear(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	badInterpreter := filepath.Join(dir, "bad")
	for file, content := range map[string]string{plain: "x", badInterpreter: "#!/no/such/interpreter\n"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(badInterpreter, 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		req  *agentv1.StartRequest
		code int32
		say  string
	}{
		{&agentv1.StartRequest{Argv: []string{"no-such-program"}}, 127, "no program no-such-program"},
		{&agentv1.StartRequest{Argv: []string{"/no/such"}}, 127, "no program /no/such"},
		{&agentv1.StartRequest{Argv: []string{plain}}, 126, "not executable"},
		{&agentv1.StartRequest{Argv: []string{dir}}, 126, "not executable"},
		{&agentv1.StartRequest{Argv: []string{badInterpreter}}, 127, "interpreter"},
		{&agentv1.StartRequest{Argv: []string{"true"}, Cwd: "/no/such"}, 126, "no directory /no/such"},
		{&agentv1.StartRequest{Argv: []string{"true"}, Cwd: plain}, 126, "not a directory"},
		{&agentv1.StartRequest{Argv: []string{"true"}, User: "nosuchuser"}, 126, `no user "nosuchuser"`},
	}
	for _, tt := range tests {
		tr := f.start(tt.req)
		if tr.exit.GetReason() != agentv1.Reason_START_FAILED || tr.exit.GetCode() != tt.code || !strings.Contains(tr.exit.GetMessage(), tt.say) {
			t.Errorf("%v: %v", tt.req, tr.exit)
		}
	}
	for _, bad := range []*agentv1.StartRequest{{}, {Argv: []string{"a\x00b"}}, {Argv: []string{"true"}, Env: map[string]string{"A=B": ""}}, {Argv: []string{"true"}, TimeoutMillis: -1}} {
		s, err := f.client.Start(f.ctx(), bad)
		if err == nil {
			for s.Receive() {
			}
			err = s.Err()
		}
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestArgumentsDirectoryEnvironmentAndUser(t *testing.T) {
	f := newFixture(t)
	f.renew(Renewal{Env: map[string]string{"SET": "service", "OVER": "service"}})
	tr := f.start(&agentv1.StartRequest{
		Argv: []string{"sh", "-c", `printf '%s|' "$@" "$PWD" "$SET" "$OVER" "$HOME" "$USER" "$LANG" "${TERM-none}" "$PATH"`, "sh", "a b", "ü"},
		Cwd:  "/tmp", Env: map[string]string{"OVER": "call"},
	})
	want(t, "stdout", tr.stdout, "a b|ü|/tmp|service|call|/root|root|C.UTF-8|none|"+defaultPath+"|")

	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	os.WriteFile(passwd, []byte("root:x:0:0:r:/root:/bin/bash\nmia:x:4711:4712:M:/:/bin/sh\n"), 0o644)
	os.WriteFile(group, []byte("root:x:0:\nmia:x:4712:\nsudo:x:27:bob,mia\nwheel:x:99:mia\n"), 0o644)
	g := newFixture(t, func(c *Config) { c.Users = Users{passwd, group} })
	for _, user := range []string{"mia", "4711"} {
		tr = g.run(&agentv1.RunRequest{Language: "bash", User: user, Code: "id -u; id -g; id -G; echo $HOME $USER $LOGNAME $SHELL; pwd; umask"})
		if tr.exit.GetCode() != 0 {
			t.Fatalf("%v %s", tr.exit, tr.stderr)
		}
		lines := strings.Split(tr.stdout, "\n")
		want(t, "ids", strings.Join(lines[:3], ","), "4711,4712,4712 27 99")
		want(t, "home", strings.Join(lines[3:5], ","), "/ mia mia /bin/sh,/")
	}
}

func TestUsersFileIsParsedDefensively(t *testing.T) {
	dir := t.TempDir()
	passwd := filepath.Join(dir, "passwd")
	os.WriteFile(passwd, []byte("# c\n\nbroken\nbad:x:minus:0::/:/bin/sh\nbig:x:99999999999:0::/:/bin/sh\nok:x:5:6:::\n"), 0o644)
	u := Users{passwd, filepath.Join(dir, "none")}
	got, err := u.Lookup("ok")
	if err != nil || got.UID != 5 || got.GID != 6 || got.Home != "/" || got.Shell != "/bin/sh" {
		t.Errorf("%+v %v", got, err)
	}
	for _, name := range []string{"broken", "bad", "big", "x", "7"} {
		if _, err := u.Lookup(name); !errors.Is(err, ErrNoUser) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if root, err := u.Lookup(""); err != nil || root.UID != 0 || root.Home != "/root" {
		t.Errorf("root: %v %v", root, err)
	}
}

func TestBashIsAFreshProcessPerCall(t *testing.T) {
	f := newFixture(t)
	want(t, "first", f.bash("x=1; echo $0 $#; cat; echo $?").stdout, "bash 0\n0\n")
	want(t, "second", f.bash("echo ${x-unset}").stdout, "unset\n")
	tr := f.bash("no_such_command_here")
	if tr.exit.GetCode() != 127 || !strings.HasPrefix(tr.stderr, "/bin/bash: line 1:") && !strings.HasPrefix(tr.stderr, "bash: line 1:") {
		t.Errorf("%v %q", tr.exit, tr.stderr)
	}
}

func TestBashCodeOfManyMegabytes(t *testing.T) {
	f := newFixture(t)
	code := "echo first\n" + strings.Repeat(": "+strings.Repeat("x", 98)+"\n", 30_000) + "echo $0; ls -l /proc/$$/fd | grep -c code; exit 9"
	tr := f.bash(code)
	want(t, "stdout", tr.stdout, "first\nbash\n0\n")
	if tr.exit.GetCode() != 9 {
		t.Errorf("%v %q", tr.exit, tr.stderr)
	}
}

func TestTimeoutStopsTheCommandAndItsChildren(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.KillGrace = 200 * time.Millisecond })
	for _, script := range []string{
		"sh -c 'echo $$; exec sleep 60'; true",                     // the child gets SIGINT too
		"trap '' INT; sh -c 'trap \"\" INT; echo $$; sleep 60'; :", // only SIGKILL helps
	} {
		tr := f.run(&agentv1.RunRequest{Language: "bash", Code: script, TimeoutMillis: 200})
		if tr.exit.GetReason() != agentv1.Reason_TIMEOUT || tr.exit.GetSignal() == 0 {
			t.Errorf("%s: %v", script, tr.exit)
		}
		child, err := strconv.Atoi(strings.TrimSpace(tr.stdout))
		if err != nil {
			t.Fatalf("%q", tr.stdout)
		}
		eventually(t, "child is gone", func() bool { return errors.Is(unix.Kill(child, 0), unix.ESRCH) })
	}
}

// A shell without job control lets what it puts in the background ignore interrupts.
func TestTimeoutStopsWhatTheCommandHasInTheBackground(t *testing.T) {
	for _, c := range []struct {
		name, script string
		lives        bool
	}{
		{"waited for", "sleep 61 & echo $!; wait", false},
		{"of a subshell", "(sleep 61 & echo $!; wait); :", false},
		{"beside another", "sleep 61 & echo $!; sleep 62", false},
		// What has left the group is not the command's any more.
		{"daemon", "setsid sh -c 'echo $$; exec sleep 61' & sleep 62", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tr := f.run(&agentv1.RunRequest{Language: "bash", Code: c.script, TimeoutMillis: 2000})
			if tr.exit.GetReason() != agentv1.Reason_TIMEOUT {
				t.Errorf("%v", tr.exit)
			}
			if !c.lives {
				f.gone(tr.stdout)
			} else if pid, err := strconv.Atoi(strings.TrimSpace(tr.stdout)); err != nil || unix.Kill(pid, unix.SIGKILL) != nil {
				t.Errorf("%q has ended", tr.stdout)
			}
		})
	}
}

func TestEndOfARunIsThatOfItsGroupWhenItIsAskedFor(t *testing.T) {
	f := newFixture(t)
	for _, whole := range []bool{true, false} {
		b := f.openStart(&agentv1.StartRequest{RunId: fmt.Sprint("r", whole), Argv: []string{"bash", "-c", "sleep 61 & echo $!; wait"}})
		b.until("\n")
		_, err := f.client.Signal(f.ctx(), &agentv1.SignalRequest{RunId: fmt.Sprint("r", whole), Signal: 2, EndGroup: whole})
		if err != nil {
			t.Fatal(err)
		}
		tr := b.rest()
		if whole {
			f.gone(tr.stdout)
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(tr.stdout)); err != nil || unix.Kill(pid, unix.SIGKILL) != nil {
			t.Errorf("it has ended by a mere signal: %q", tr.stdout)
		}
	}
}

// gone waits until the process whose number was printed has ended.
func (f *fixture) gone(printed string) {
	f.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(printed))
	if err != nil {
		f.t.Fatalf("no process number: %q", printed)
	}
	eventually(f.t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}

func TestSignalReachesTheWholeProcessGroup(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(&agentv1.StartRequest{RunId: "s", Argv: []string{"sh", "-c", "sh -c 'echo child $$; exec sleep 60'; true"}})
	b.until("\n")
	child, _ := strconv.Atoi(strings.Fields(b.tr.stdout)[1])
	if err := f.signal("s", int32(unix.SIGINT)); err != nil {
		t.Fatal(err)
	}
	if e := b.rest().exit; e.GetSignal() != 2 || e.GetCode() != 130 || e.GetReason() != agentv1.Reason_SIGNALED {
		t.Errorf("%v", e)
	}
	eventually(t, "child is gone", func() bool { return errors.Is(unix.Kill(child, 0), unix.ESRCH) })
	if err := f.signal("s", 15); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("signal after the end: %v", err)
	}
	if err := f.signal("nope", 15); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("signal to nobody: %v", err)
	}
	if err := f.signal("s", 99); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("signal 99: %v", err)
	}
}

func (f *fixture) input(id string, eof bool, chunks ...string) (uint64, error) {
	s, err := f.client.Input(f.ctx())
	if err != nil {
		return 0, err
	}
	for i, c := range chunks {
		m := &agentv1.InputRequest{RunId: id, Data: []byte(c), Eof: eof && i == len(chunks)-1}
		if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	res, err := s.CloseAndReceive()
	return res.GetBytes(), err
}

func TestInputStreamsToStandardInputWithEOF(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(&agentv1.StartRequest{RunId: "cat", Argv: []string{"sha256sum"}, Stdin: true})
	big := strings.Repeat("0123456789abcdef", 64<<10) // far more than a pipe holds
	if n, err := f.input("cat", false, big, big); err != nil || n != uint64(2*len(big)) {
		t.Fatalf("%d %v", n, err)
	}
	if _, err := f.input("cat", true, "end"); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(big+big+"end")))
	want(t, "sum", b.rest().stdout, sum)
	if _, err := f.input("cat", false, "more"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("input after the end: %v", err)
	}
}

func TestInputErrorsAreClear(t *testing.T) {
	f := newFixture(t)
	none := f.openStart(&agentv1.StartRequest{RunId: "none", Argv: []string{"sleep", "60"}})
	deaf := f.openStart(&agentv1.StartRequest{RunId: "deaf", Argv: []string{"sh", "-c", "exec <&-; echo closed; sleep 60"}, Stdin: true})
	full := f.openStart(&agentv1.StartRequest{RunId: "full", Argv: []string{"sleep", "60"}, Stdin: true})
	deaf.until("closed")
	if _, err := f.input("none", false, "x"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("no stdin: %v", err)
	}
	if _, err := f.input("deaf", false, "x"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("closed stdin: %v", err)
	}
	// A program that does not read holds its writer back; the writer can leave.
	ctx, cancel := context.WithCancel(f.ctx())
	s, err := f.client.Input(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&agentv1.InputRequest{RunId: "full", Data: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.CloseAndReceive(); err == nil {
		t.Error("a megabyte went into a pipe that nobody reads")
	}
	for b, id := range map[*background]string{none: "none", deaf: "deaf", full: "full"} {
		if err := f.signal(id, 9); err != nil {
			t.Error(err)
		}
		b.rest()
	}
}

func TestDaemonThatHoldsStdoutDoesNotKeepTheCallOpenAndLivesOn(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	start := time.Now()
	tr := f.bash(fmt.Sprintf(`(while [ ! -e %s/go ]; do sleep 0.02; done; echo late; echo more; echo $? > %s/status) & echo main`, dir, dir))
	want(t, "stdout", tr.stdout, "main\n")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	os.WriteFile(dir+"/go", nil, 0o600)
	eventually(t, "the daemon wrote without SIGPIPE", func() bool {
		b, _ := os.ReadFile(dir + "/status")
		return string(b) == "0\n"
	})
}

func TestBackgroundFloodDoesNotKeepTheCallOpen(t *testing.T) {
	f := newFixture(t)
	tr := f.bash("yes & echo $!; sleep 0.05; exit 4")
	if tr.exit.GetCode() != 4 {
		t.Errorf("%v", tr.exit)
	}
	pid, _ := strconv.Atoi(strings.Fields(strings.ReplaceAll(tr.stdout, "y\n", ""))[0])
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Errorf("kill %d: %v", pid, err)
	}
}

func TestBackgroundProcessSurvivesTheRequestThatStartedIt(t *testing.T) {
	f := newFixture(t)
	b := f.openStart(&agentv1.StartRequest{RunId: "bg", Detach: true, Argv: []string{"sh", "-c", "echo up; read x < /dev/zero & sleep 60"}})
	b.until("up")
	b.stop()
	if err := f.signal("bg", 9); err != nil {
		t.Fatalf("it did not survive: %v", err)
	}
	tr := f.collect(f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "bg"}))
	want(t, "stdout", tr.stdout, "up\n")
}

func TestOutputIsCompleteForLargeOutput(t *testing.T) {
	f := newFixture(t)
	const n = 40 << 20
	tr := f.start(&agentv1.StartRequest{Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' 'a'", n)}})
	if len(tr.stdout) != n || strings.Trim(tr.stdout, "a") != "" || tr.truncated != 0 {
		t.Errorf("%d bytes, truncated %d", len(tr.stdout), tr.truncated)
	}
}

// What is beyond the journal is told, to whoever has not read it in time.
func TestTruncationIsExplicitAndExact(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MemoryPerRun, c.SpoolPerRun = 64<<10, 1<<20 })
	const n = 5 << 20
	b := f.openStart(&agentv1.StartRequest{RunId: "t", Detach: true, Argv: []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero; echo end; exit 3", n-4)}})
	b.stop()
	eventually(t, "it has ended", func() bool { return f.info("t").GetExit() != nil })
	sub, ok := f.svc.runs.get("t").journal.subscribe(0)
	if !ok {
		t.Fatal("cannot subscribe")
	}
	defer sub.close()
	text, missing := rest(t, sub, true)
	if uint64(len(text))+missing != n || missing == 0 || !strings.HasSuffix(text, "\x00end\n") || f.info("t").GetExit().GetCode() != 3 {
		t.Errorf("%d + %d of %d, %v", len(text), missing, n, f.info("t"))
	}
}

// The limit is what waits for a reader, not what a run can say.
func TestWhoKeepsUpMissesNothingHoweverMuchItIs(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MemoryPerRun, c.SpoolPerRun = 64<<10, 1<<20 })
	const rounds, each = 30, 200 << 10
	code := fmt.Sprintf("for i in $(seq %d); do read x; head -c %d /dev/zero; done; echo end", rounds, each)
	b := f.openStart(&agentv1.StartRequest{RunId: "k", Argv: []string{"bash", "-c", code}, Stdin: true})
	for i := range rounds {
		if _, err := f.input("k", false, "\n"); err != nil {
			t.Fatal(err)
		}
		for len(b.tr.out) < (i+1)*each {
			if !b.s.Receive() {
				t.Fatalf("round %d: %v", i, b.s.Err())
			}
			b.tr.add(t, b.s.Msg(), 0)
		}
	}
	if tr := b.rest(); len(tr.stdout) != rounds*each+len("end\n") || tr.truncated != 0 || tr.exit.GetCode() != 0 {
		t.Errorf("%d bytes, %d missing, %v", len(tr.stdout), tr.truncated, tr.exit)
	}
}

func TestNoCharacterIsSplitAndInvalidBytesPass(t *testing.T) {
	f := newFixture(t)
	script := `printf 'a\xe2\x82'; sleep 0.1; printf '\xacb\xff\xc3'; sleep 0.1; printf '\xbc'; printf 'end\xf0\x9f'`
	tr := f.bash(script)
	want(t, "bytes", tr.stdout, "a€b\xffüend\xf0\x9f")
	for _, e := range tr.events[:len(tr.events)-2] {
		if tail := incompleteTail(e.GetStdout()); tail != 0 {
			t.Errorf("chunk %q splits a character", e.GetStdout())
		}
	}
}

func TestAttachReplaysFromAnySequenceNumberWhileItRuns(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MemoryPerRun = 32 << 10 })
	full := f.openStart(&agentv1.StartRequest{RunId: "a", Argv: []string{"sh", "-c", "seq 1 200000"}})
	all := full.rest()
	for _, from := range []uint64{0, 1, all.last / 2, all.last} {
		s, err := f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "a", FromSeq: from})
		tr := f.collectFrom(s, err, from)
		expect := ""
		for _, e := range all.events[from:] {
			expect += string(e.GetStdout())
		}
		if tr.stdout != expect {
			t.Errorf("from %d: %d bytes, want %d", from, len(tr.stdout), len(expect))
		}
	}
	s, err := f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "a", FromSeq: all.last + 5})
	if err == nil {
		for s.Receive() {
		}
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeOutOfRange {
		t.Errorf("beyond the end: %v", err)
	}
	s, err = f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "never"})
	if err == nil {
		for s.Receive() {
		}
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("unknown run: %v", err)
	}
}

func TestSlowAndLeavingSubscribersHurtNobody(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MemoryPerRun = 32 << 10 })
	const n = 20 << 20
	slow := f.openStart(&agentv1.StartRequest{RunId: "s", Argv: []string{"sh", "-c", fmt.Sprintf("echo up; read x; head -c %d /dev/zero", n)}, Stdin: true})
	slow.until("up") // and reads no more for now
	for range 5 {
		ctx, cancel := context.WithCancel(f.ctx())
		s, err := f.client.Attach(ctx, &agentv1.AttachRequest{RunId: "s"})
		if err != nil || !s.Receive() {
			t.Fatal(err)
		}
		cancel()
		s.Close()
	}
	if _, err := f.input("s", true, "go\n"); err != nil {
		t.Fatal(err)
	}
	fast := f.collect(f.client.Attach(f.ctx(), &agentv1.AttachRequest{RunId: "s"}))
	if len(fast.stdout) != n+3 {
		t.Errorf("the fast one got %d bytes", len(fast.stdout))
	}
	if tr := slow.rest(); len(tr.stdout) != n+3 {
		t.Errorf("the slow one got %d bytes", len(tr.stdout))
	}
}

func TestSilentRunSendsKeepAlives(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	tr := f.bash("sleep 0.3; echo done")
	if tr.keepAlives < 3 {
		t.Errorf("%d keep-alives", tr.keepAlives)
	}
	want(t, "stdout", tr.stdout, "done\n")
}

func TestListAndRetention(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.KeepRuns, c.KeepDetached = 3, 2 })
	for i := range 5 {
		f.start(&agentv1.StartRequest{RunId: fmt.Sprint("f", i), Argv: []string{"true"}})
		f.start(&agentv1.StartRequest{RunId: fmt.Sprint("d", i), Argv: []string{"false"}, Detach: true})
	}
	b := f.openStart(&agentv1.StartRequest{RunId: "live", Argv: []string{"sh", "-c", "echo up; exec sleep 60"}})
	b.until("up")
	res, err := f.client.List(f.ctx(), &agentv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range res.GetRuns() {
		ids = append(ids, r.GetRunId())
		if (r.GetExit() == nil) != (r.GetRunId() == "live") {
			t.Errorf("%v", r)
		}
	}
	want(t, "runs", strings.Join(ids, " "), "f2 f3 d3 f4 d4 live")
	s, err := f.client.Start(f.ctx(), &agentv1.StartRequest{RunId: "live", Argv: []string{"true"}})
	if err == nil {
		for s.Receive() {
		}
		err = s.Err()
	}
	if connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("same id twice: %v", err)
	}
	if err := f.signal("live", 9); err != nil {
		t.Fatal(err)
	}
	b.rest()
}

func TestProcessesAreBornInTheUserCgroup(t *testing.T) {
	const root = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		t.Skip("there is no cgroup version 2 hierarchy here")
	}
	dir := fmt.Sprintf("%s/ramet-exec-test-%d", root, os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("cannot make a cgroup here: ", err)
	}
	defer os.Remove(dir)
	f := newFixture(t, stdlib, func(c *Config) { c.Cgroup = dir })
	name := "0::/" + filepath.Base(dir) + "\n"
	if tr := f.bash("grep ^0: /proc/self/cgroup"); tr.stdout != name {
		t.Errorf("bash is in %q, %v", tr.stdout, tr.exit)
	}
	want(t, "python", f.pythonOK("print(open('/proc/self/cgroup').read().splitlines()[-1])"), name)
	f.svc.Close()
}

func TestOOMKilledProgramIsOutOfMemory(t *testing.T) {
	counter := filepath.Join(t.TempDir(), "memory.events")
	os.WriteFile(counter, []byte("oom_kill 0\n"), 0o600)
	f := newFixture(t)
	f.svc.oom = oomCounter{counter, "oom_kill"}
	tr := f.bash("echo oom_kill 1 > " + counter + "; kill -9 $$")
	if tr.exit.GetReason() != agentv1.Reason_OUT_OF_MEMORY || tr.exit.GetCode() != 137 {
		t.Errorf("%v", tr.exit)
	}
	if tr := f.bash("kill -9 $$"); tr.exit.GetReason() != agentv1.Reason_SIGNALED {
		t.Errorf("without an OOM kill: %v", tr.exit)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	f := newFixture(t, stdlib)
	f.pythonOK("x = 1")
	b := f.openStart(&agentv1.StartRequest{Argv: []string{"sh", "-c", "echo up; exec sleep 60"}})
	b.until("up")
	p := f.openRun(&agentv1.RunRequest{Language: "python", Code: "print('up')\nimport time; time.sleep(60)"})
	p.until("up")
	f.svc.Close()
	if e := b.rest().exit; e.GetSignal() != 9 {
		t.Errorf("program: %v", e)
	}
	p.rest()
}

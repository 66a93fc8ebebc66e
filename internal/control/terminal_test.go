package control_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentv1 "ramet.dev/ramet/api/agent/v1"
	"ramet.dev/ramet/api/agent/v1/agentv1connect"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/control/controltest"
	"ramet.dev/ramet/internal/sandbox"
)

// terminal is what a terminal has shown so far.
type terminal struct {
	t      *testing.T
	stream *control.Stream
	shown  string
	exit   *agentv1.Exit
}

// until reads on until the terminal has shown a text, or to the end for "".
func (v *terminal) until(text string) {
	v.t.Helper()
	for text == "" || !strings.Contains(v.shown, text) {
		e, err := v.stream.Next()
		if errors.Is(err, io.EOF) && text == "" {
			return
		}
		if err != nil {
			v.t.Fatalf("before %q: %v, after %q", text, err, v.shown)
		}
		v.shown += string(e.GetStdout())
		if e.GetExit() != nil {
			v.exit = e.GetExit()
		}
	}
}

func (n *node) terminal(t *testing.T, id sandbox.ID, r control.ProgramRequest, script string) *terminal {
	t.Helper()
	r.Argv = []string{"bash", "-c", script}
	if r.Pty == nil {
		r.Pty = &control.PtySize{Columns: 80, Rows: 24}
	}
	s, err := n.StartProgram(t.Context(), project, id, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &terminal{t: t, stream: s}
}

func TestProgramOnATerminal(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	v := n.terminal(t, sb.ID, control.ProgramRequest{Tag: "mine", Detach: true},
		`trap 'stty size; n=1' WINCH; stty size; until [ $n ]; do sleep 0.02; done; read -r line; echo "got $line"; exit 7`)
	v.until("24 80\r\n")
	run := v.stream.Run
	runs, err := n.Runs(t.Context(), project, sb.ID)
	if err != nil || len(runs) != 1 || !runs[0].Pty || runs[0].Tag != "mine" {
		t.Fatalf("%v %v", runs, err)
	}
	if err := n.Resize(t.Context(), project, sb.ID, run, control.PtySize{Columns: 132, Rows: 50}); err != nil {
		t.Fatal(err)
	}
	v.until("50 132\r\n")
	// Who follows it now sees what comes, and not what was.
	f, err := n.Follow(t.Context(), project, sb.ID, run)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := n.Input(t.Context(), project, sb.ID, run, strings.NewReader("end\n"), false); err != nil {
		t.Fatal(err)
	}
	late := &terminal{t: t, stream: f}
	late.until("")
	v.until("")
	if strings.Contains(late.shown, "80") || !strings.HasSuffix(late.shown, "got end\r\n") || late.exit.GetCode() != 7 || v.exit.GetCode() != 7 {
		t.Errorf("followed %q %v, first %q %v", late.shown, late.exit, v.shown, v.exit)
	}
	err = n.Resize(t.Context(), project, sb.ID, run, control.PtySize{Columns: 80, Rows: 24})
	if sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("resize of one that has ended: %v", err)
	}
}

func TestTerminalOfALeavingCallerIsHungUp(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.KillDelay = 3 * time.Minute })
	sb := n.create(t)
	file := filepath.Join(t.TempDir(), "why")
	v := n.terminal(t, sb.ID, control.ProgramRequest{}, `trap '' INT; trap 'echo hangup >`+file+`; exit' HUP; echo up; while :; do sleep 0.02; done`)
	v.until("up")
	v.stream.Close()
	waitFor(t, time.Minute, "the program is told that its terminal is gone", func() bool { return n.machines.Runs(sb.Instance) == 0 })
	if text, err := os.ReadFile(file); err != nil || string(text) != "hangup\n" {
		t.Errorf("it was told by %q, %v", text, err)
	}
}

func TestTerminalsThatCannotBe(t *testing.T) {
	n := fresh(t)
	sb := n.create(t)
	for _, size := range []control.PtySize{{}, {Columns: 80}, {Rows: 24}, {Columns: 70000, Rows: 24}, {Columns: 80, Rows: -1}} {
		_, err := n.StartProgram(t.Context(), project, sb.ID, control.ProgramRequest{Argv: []string{"true"}, Pty: &size})
		checkCode(t, "start", err, "invalid_pty")
		checkCode(t, "resize", n.Resize(t.Context(), project, sb.ID, "run_x", size), "invalid_pty")
	}
	ok := control.PtySize{Columns: 80, Rows: 24}
	if err := n.Resize(t.Context(), project, sb.ID, "run_none", ok); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("no such run: %v", err)
	}
	s, err := n.StartProgram(t.Context(), project, sb.ID, control.ProgramRequest{Argv: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := n.Resize(t.Context(), project, sb.ID, s.Run, ok); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a run without a terminal: %v", err)
	}
	for _, tag := range []string{strings.Repeat("x", 257), "a\nb"} {
		_, err := n.StartProgram(t.Context(), project, sb.ID, control.ProgramRequest{Argv: []string{"true"}, Tag: tag})
		checkCode(t, "tag", err, "invalid_tag")
	}
}

func checkCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, not %s", what, err, code)
	}
}

// oldMachines are machines whose agents are older than terminals.
type oldMachines struct{ *controltest.Machines }

type oldGuest struct{ control.Guest }

type oldExec struct{ agentv1connect.ExecClient }

func (m oldMachines) Guest(ctx context.Context, id sandbox.InstanceID) (control.Guest, error) {
	g, err := m.Machines.Guest(ctx, id)
	return oldGuest{g}, err
}

func (g oldGuest) Exec() agentv1connect.ExecClient { return oldExec{g.Guest.Exec()} }

func (oldExec) Resize(context.Context, *agentv1.ResizeRequest) (*agentv1.ResizeResponse, error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not implemented"))
}

func TestOldAgentStartsNothingOnATerminal(t *testing.T) {
	n := fresh(t, func(c *control.Config) { c.Machines = oldMachines{c.Machines.(*controltest.Machines)} })
	sb := n.create(t)
	_, err := n.StartProgram(t.Context(), project, sb.ID, control.ProgramRequest{Argv: []string{"true"}, Pty: &control.PtySize{Columns: 80, Rows: 24}})
	checkCode(t, "start", err, "unsupported_by_agent")
	if runs := n.machines.Runs(sb.Instance); runs != 0 {
		t.Errorf("%d runs", runs)
	}
}

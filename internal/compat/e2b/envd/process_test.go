package envd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	envdv1 "ramet.dev/ramet/api/envd/v1"
)

func TestACommandTellsItsOutputAndItsEnd(t *testing.T) {
	e := start(t)
	o := e.run(bash(`echo "out $GIVEN $X"; echo err >&2`), nil)
	if o.err != nil || o.pid == 0 || o.stdout != "out at-create \n" || o.stderr != "err\n" {
		t.Errorf("%+v", o)
	}
	if o.end == nil || o.end.ExitCode != 0 || !o.end.Exited || o.end.Status != "exit status 0" || o.end.Error != nil {
		t.Errorf("end: %v", o.end)
	}
	req := bash(`echo $X; exit 3`)
	req.Process.Envs = map[string]string{"X": "of the call"}
	o = e.run(req, nil)
	if o.stdout != "of the call\n" || o.end.ExitCode != 3 || o.end.GetError() != "exit status 3" || !o.end.Exited {
		t.Errorf("%+v", o)
	}
}

func TestAKilledCommandSaysSo(t *testing.T) {
	e := start(t)
	stream, pid := e.begin(t.Context(), bash("sleep 600"), nil)
	if _, err := e.process(nil).SendSignal(t.Context(), &envdv1.SendSignalRequest{Process: byPid(pid), Signal: envdv1.Signal_SIGNAL_SIGKILL}); err != nil {
		t.Fatal(err)
	}
	o := follow(stream)
	if o.end == nil || o.end.ExitCode != -1 || o.end.Exited || o.end.GetError() != "signal: killed" {
		t.Errorf("end: %+v", o)
	}
	_, err := e.process(nil).SendSignal(t.Context(), &envdv1.SendSignalRequest{Process: byPid(pid), Signal: envdv1.Signal_SIGNAL_SIGKILL})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a second kill: %v", err)
	}
	_, err = e.process(nil).SendSignal(t.Context(), &envdv1.SendSignalRequest{Process: byPid(pid), Signal: 5})
	if connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("another signal: %v", err)
	}
}

func TestTheCallersLimitIsThatOfTheProcess(t *testing.T) {
	e := start(t)
	begin := time.Now()
	o := e.run(bash("sleep 600"), header{"Connect-Timeout-Ms": "700.5"})
	if connect.CodeOf(o.err) != connect.CodeDeadlineExceeded {
		t.Errorf("%+v after %s", o, time.Since(begin))
	}
	waitFor(t, "the process has ended", func() bool { return len(e.list()) == 0 })
}

func (e *env) list() []*envdv1.ProcessInfo {
	e.t.Helper()
	res, err := e.process(nil).List(e.t.Context(), &envdv1.ListRequest{})
	if err != nil {
		e.t.Fatal(err)
	}
	return res.Processes
}

func TestACommandOutlivesItsClient(t *testing.T) {
	e := start(t)
	ctx, leave := context.WithCancel(t.Context())
	req := bash("read -r line; echo got $line")
	on, tag := true, "mine"
	req.Stdin, req.Tag = &on, &tag
	_, pid := e.begin(ctx, req, nil)
	leave()
	list := e.list()
	if len(list) != 1 || list[0].Pid != pid || list[0].Config.Cmd != "/bin/bash" || strings.Join(list[0].Config.Args, " ") != "-c read -r line; echo got $line" {
		t.Fatalf("list: %v", list)
	}
	stream, err := e.process(nil).Connect(t.Context(), &envdv1.ConnectRequest{Process: byPid(pid)})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var o outcome
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	if o.take(stream.Msg().Event); o.pid != pid {
		t.Fatalf("the first event of a connect: %v", stream.Msg())
	}
	e.send(pid, "a line\n")
	for stream.Receive() {
		o.take(stream.Msg().Event)
	}
	if stream.Err() != nil || o.stdout != "got a line\n" || o.end.GetExitCode() != 0 {
		t.Errorf("%+v %v", o, stream.Err())
	}
	if list := e.list(); len(list) != 0 {
		t.Errorf("what has ended is listed: %v", list)
	}
	_, err = recvConnect(e, pid)
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("connect to what has ended: %v", err)
	}
}

func recvConnect(e *env, pid uint32) (*envdv1.ConnectResponse, error) {
	stream, err := e.process(nil).Connect(e.t.Context(), &envdv1.ConnectRequest{Process: byPid(pid)})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if stream.Receive() {
		return stream.Msg(), nil
	}
	return nil, stream.Err()
}

func (e *env) send(pid uint32, text string) {
	e.t.Helper()
	_, err := e.process(nil).SendInput(e.t.Context(), &envdv1.SendInputRequest{Process: byPid(pid), Input: stdin(text)})
	if err != nil {
		e.t.Fatal(err)
	}
}

func stdin(text string) *envdv1.ProcessInput {
	return &envdv1.ProcessInput{Input: &envdv1.ProcessInput_Stdin{Stdin: []byte(text)}}
}

func TestSeveralClientsFollowOneCommand(t *testing.T) {
	e := start(t)
	req := bash("read -r line; echo got $line")
	req.Stdin = nil // absent means that there is one
	first, pid := e.begin(t.Context(), req, nil)
	second, err := e.process(nil).Connect(t.Context(), &envdv1.ConnectRequest{Process: byPid(pid)})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if !second.Receive() {
		t.Fatal(second.Err())
	}
	e.send(pid, "this\n")
	o := follow(first)
	var p outcome
	for second.Receive() {
		p.take(second.Msg().Event)
	}
	if o.stdout != "got this\n" || p.stdout != o.stdout || p.end == nil || o.end == nil {
		t.Errorf("%+v %+v", o, p)
	}
}

func TestInputStreamsInOrderAndEnds(t *testing.T) {
	e := start(t)
	req := bash("cat; echo end")
	req.Stdin = nil
	stream, pid := e.begin(t.Context(), req, nil)
	in, err := e.process(nil).StreamInput(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	messages := []*envdv1.StreamInputRequest{
		{Event: &envdv1.StreamInputRequest_Start{Start: &envdv1.StreamInputRequest_StartEvent{Process: byPid(pid)}}},
		{Event: &envdv1.StreamInputRequest_Data{Data: &envdv1.StreamInputRequest_DataEvent{Input: stdin("one ")}}},
		{Event: &envdv1.StreamInputRequest_Keepalive{Keepalive: &envdv1.StreamInputRequest_KeepAlive{}}},
		{Event: &envdv1.StreamInputRequest_Data{Data: &envdv1.StreamInputRequest_DataEvent{Input: stdin("two\n")}}},
	}
	for _, m := range messages {
		if err := in.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.process(nil).CloseStdin(t.Context(), &envdv1.CloseStdinRequest{Process: byPid(pid)}); err != nil {
		t.Fatal(err)
	}
	if o := follow(stream); o.stdout != "one two\nend\n" || o.end.GetExitCode() != 0 {
		t.Errorf("%+v", o)
	}
}

func TestStreamedInputIsRefusedWithItsReason(t *testing.T) {
	e := start(t)
	_, pid := e.begin(t.Context(), bash("sleep 600"), nil) // without standard input
	for name, test := range map[string]struct {
		messages []*envdv1.StreamInputRequest
		code     connect.Code
	}{
		"nothing": {nil, connect.CodeInvalidArgument},
		"no start": {[]*envdv1.StreamInputRequest{
			{Event: &envdv1.StreamInputRequest_Data{Data: &envdv1.StreamInputRequest_DataEvent{Input: stdin("x")}}},
		}, connect.CodeInvalidArgument},
		"no such process": {[]*envdv1.StreamInputRequest{
			{Event: &envdv1.StreamInputRequest_Start{Start: &envdv1.StreamInputRequest_StartEvent{Process: byPid(4000000000)}}},
		}, connect.CodeNotFound},
		"no stdin": {[]*envdv1.StreamInputRequest{
			{Event: &envdv1.StreamInputRequest_Start{Start: &envdv1.StreamInputRequest_StartEvent{Process: byPid(pid)}}},
			{Event: &envdv1.StreamInputRequest_Data{Data: &envdv1.StreamInputRequest_DataEvent{Input: stdin("x")}}},
		}, connect.CodeFailedPrecondition},
	} {
		in, err := e.process(nil).StreamInput(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range test.messages {
			_ = in.Send(m) // a refusal ends it early
		}
		if _, err := in.CloseAndReceive(); connect.CodeOf(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	e := start(t)
	missing := &envdv1.StartRequest{Process: &envdv1.ProcessConfig{Cmd: "/no/such/program"}}
	if o := e.run(missing, nil); connect.CodeOf(o.err) != connect.CodeInvalidArgument || !strings.Contains(o.err.Error(), "/no/such/program") {
		t.Errorf("no such program: %+v", o)
	}
	if o := e.run(&envdv1.StartRequest{}, nil); connect.CodeOf(o.err) != connect.CodeInvalidArgument {
		t.Errorf("no program: %+v", o)
	}
	long := bash("true")
	long.Process.Envs = map[string]string{"A=B": "x"}
	if o := e.run(long, nil); connect.CodeOf(o.err) != connect.CodeInvalidArgument {
		t.Errorf("a wrong variable: %+v", o)
	}
}

func TestSilentStreamsAreKeptAlive(t *testing.T) {
	e := start(t)
	if o := e.run(bash("sleep 2.5"), header{"Keepalive-Ping-Interval": "1"}); o.alive == 0 || o.end == nil {
		t.Errorf("%+v", o)
	}
}

func TestSelectorsThatNameNothing(t *testing.T) {
	e := start(t)
	for _, sel := range []*envdv1.ProcessSelector{nil, {}} {
		_, err := e.process(nil).SendInput(t.Context(), &envdv1.SendInputRequest{Process: sel, Input: stdin("x")})
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", sel, err)
		}
	}
	_, err := e.process(nil).Update(t.Context(), &envdv1.UpdateRequest{Process: &envdv1.ProcessSelector{Selector: &envdv1.ProcessSelector_Tag{Tag: "none"}}})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("by tag: %v", err)
	}
}

func TestADrainEndsStreamsAndNoProcess(t *testing.T) {
	e := start(t)
	stream, _ := e.begin(t.Context(), bash("sleep 600"), nil)
	e.Envd.Drain()
	if o := follow(stream); connect.CodeOf(o.err) != connect.CodeUnavailable {
		t.Errorf("%+v", o)
	}
	if n := len(e.list()); n != 1 {
		t.Errorf("%d processes run", n)
	}
}

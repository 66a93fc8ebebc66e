package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
)

// exec runs bash and returns its events.
func (e *env) exec(id, code, more string) []rametv1.Event {
	e.t.Helper()
	quoted, _ := json.Marshal(code)
	res, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":`+string(quoted)+more+`}`)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/x-ndjson" || res.Header.Get("X-Run-Id") == "" {
		e.t.Fatalf("exec: %d %v %s", res.StatusCode, res.Header, body)
	}
	return events(e.t, body)
}

func TestExecLines(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	for _, c := range []struct{ name, code, more, want string }{
		{"one line", "echo 42", "", "stdout:\"42\"\nexit:0\n"},
		{"empty lines", `printf 'a\n\n\nb\n'`, "", "stdout:\"a\"\nstdout:\"\"\nstdout:\"\"\nstdout:\"b\"\nexit:0\n"},
		{"no newline at the end", `printf 'a\nb'`, "", "stdout:\"a\"\nstdout:\"b\" no-eol\nexit:0\n"},
		{"only a newline", "echo", "", "stdout:\"\"\nexit:0\n"},
		{"nothing", "true", "", "exit:0\n"},
		{"code", "exit 7", "", "exit:7\n"},
		{"killed", "kill -9 $$", "", "exit:137 signaled\n"},
		{"stderr", "echo err >&2", "", "stderr:\"err\"\nexit:0\n"},
		{"env", "echo $A", `,"env":{"A":"b c"}`, "stdout:\"b c\"\nexit:0\n"},
		{"timeout", "sleep 30", `,"timeout_s":0.05`, "exit:130 timeout\n"},
		// Python's splitlines takes these for ends of lines: they must be escaped.
		{
			"line separators", `printf 'a\xc2\x85b\xe2\x80\xa8c\xe2\x80\xa9d\x1ce\x0bf\n'`, "",
			"stdout:\"a\\u0085b\\u2028c\\u2029d\\u001ce\\u000bf\"\nexit:0\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := e.with(t)
			got := e.exec(id, c.code, c.more)
			if brief(got) != c.want {
				t.Errorf("got:\n%swant:\n%s", brief(got), c.want)
			}
			for i, ev := range got {
				if ev.Seq != int64(i) || time.Since(time.UnixMilli(ev.Ts)).Abs() > time.Minute {
					t.Errorf("event %d has seq %d, ts %d", i, ev.Seq, ev.Ts)
				}
			}
		})
	}
}

func TestExecChunks(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	got := e.exec(id, `printf 'a\nb'; printf '\377x' >&2`, `,"format":"chunks"`)
	if got[0].Type != "started" || *got[0].Process == "" {
		t.Errorf("first %+v", got[0])
	}
	var stdout, stderr []byte
	for i, ev := range got {
		if ev.Seq != int64(i) {
			t.Errorf("event %d has seq %d", i, ev.Seq)
		}
		var s string
		if ev.Type == "stdout" || ev.Type == "stderr" {
			if err := json.Unmarshal(ev.Data, &s); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case ev.Type == "stdout":
			stdout = append(stdout, s...)
		case ev.Type == "stderr" && ev.DataB64 != nil:
			b, err := base64.StdEncoding.DecodeString(*ev.DataB64)
			if err != nil {
				t.Fatal(err)
			}
			stderr = append(stderr, b...)
			if s != "\uFFFDx" {
				t.Errorf("replaced text %q", s)
			}
		}
	}
	if string(stdout) != "a\nb" || !bytes.Equal(stderr, []byte("\xffx")) {
		t.Errorf("stdout %q stderr %q", stdout, stderr)
	}
}

func TestExecOutputIsComplete(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	got := e.exec(id, "seq 1 200000", "")
	if len(got) != 200001 {
		t.Fatalf("%d events", len(got))
	}
	if string(got[199999].Data) != `"200000"` || got[199999].Seq != 199999 {
		t.Errorf("last line %s seq %d", got[199999].Data, got[199999].Seq)
	}
}

func TestExecLongLineIsOneEvent(t *testing.T) {
	// Podflare's download is one line of base64 without a newline.
	e := start(t, options{})
	id := e.create()
	got := e.exec(id, "head -c 8000000 /dev/zero | tr '\\0' x", "")
	if len(got) != 2 || len(got[0].Data) != 8000002 || got[0].Eol == nil {
		t.Errorf("%d events, first has %d bytes", len(got), len(got[0].Data))
	}
}

func TestSilentStreamIsKeptAlive(t *testing.T) {
	e := start(t, options{keepAlive: 20 * time.Millisecond})
	id := e.create()
	_, r := e.openStream(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"sleep 1.3; echo x"}`)
	empty := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\n" {
			empty++
			continue
		}
		if !strings.Contains(line, `"data":"x"`) {
			t.Errorf("line %q", line)
		}
		break
	}
	if empty < 3 {
		t.Errorf("%d empty lines in 1.3 seconds", empty)
	}
}

func TestClientDisconnectEndsForegroundRuns(t *testing.T) {
	e := start(t, options{})
	for _, c := range []struct{ name, path, body string }{
		{"exec", "/exec", `{"language":"bash","code":"echo go; sleep 60"}`},
		{"program", "/processes", `{"argv":["bash","-c","echo go; sleep 60"]}`},
		{"that ignores SIGINT", "/exec", `{"language":"bash","code":"trap '' INT; echo go; while :; do sleep 0.05; done"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := e.with(t)
			id := e.create()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, r := e.openStream(ctx, "POST", "/v1/sandboxes/"+id+c.path, c.body)
			for readEvent(t, r).Type != "stdout" {
			}
			if n := e.machines.Runs(e.instance(id)); n != 1 {
				t.Fatalf("%d runs before", n)
			}
			cancel()
			waitFor(t, 5*time.Second, "the run has ended", func() bool { return e.machines.Runs(e.instance(id)) == 0 })
		})
	}
}

func TestDetachedProgramOutlivesItsCall(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, r := e.openStream(ctx, "POST", "/v1/sandboxes/"+id+"/processes",
		`{"argv":["bash","-c","echo one; read x; echo two-$x"],"stdin":true,"detach":true}`)
	started := readEvent(t, r)
	if started.Type != "started" {
		t.Fatalf("%+v", started)
	}
	one := readEvent(t, r)
	cancel()
	base := "/v1/sandboxes/" + id + "/processes"
	process := base + "/" + *started.Process

	list, err := e.client.ListProcessesWithResponse(t.Context(), id)
	if err != nil || list.JSON200 == nil || len(list.JSON200.Processes) != 1 || !list.JSON200.Processes[0].Running {
		t.Fatalf("%v %s", err, list.Body)
	}
	res, body := e.do("POST", process+"/stdin?eof=true", "hello\n", "Content-Type", "application/octet-stream")
	if res.StatusCode != 200 || string(body) != "{\"bytes\":6}\n" {
		t.Fatalf("stdin: %d %s", res.StatusCode, body)
	}
	// Follow it from behind the last event seen: nothing is lost or sent twice.
	res, body = e.do("GET", process+"/stream?from_seq="+string(number(one.Seq+1)), "")
	if got := brief(events(t, body)); res.StatusCode != 200 || got != "stdout:\"two-hello\\n\"\nexit:0\n" {
		t.Errorf("%d %s", res.StatusCode, got)
	}
	// And from the start.
	_, body = e.do("GET", process+"/stream", "")
	if got := events(t, body); len(got) != 4 || got[0].Seq != 0 {
		t.Errorf("%s", body)
	}
	if res, body := e.do("GET", base+"/run_none/stream", ""); res.StatusCode != 404 {
		t.Errorf("unknown process: %d %s", res.StatusCode, body)
	}
}

func number(n int64) []byte {
	b, _ := json.Marshal(n)
	return b
}

func TestSignals(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	for signal, want := range map[string]string{
		`"SIGINT"`: "exit:130 interrupted\n", `"kill"`: "exit:137 signaled\n", `15`: "exit:143 signaled\n",
	} {
		t.Run(signal, func(t *testing.T) {
			e := e.with(t)
			res, r := e.openStream(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"echo go; exec sleep 60"}`)
			if ev := readEvent(t, r); ev.Type != "stdout" {
				t.Fatalf("%+v", ev)
			}
			run := res.Header.Get("X-Run-Id")
			if res, body := e.do("POST", "/v1/sandboxes/"+id+"/processes/"+run+"/signal", `{"signal":`+signal+`}`); res.StatusCode != 204 {
				t.Fatalf("%d %s", res.StatusCode, body)
			}
			if got := brief([]rametv1.Event{readEvent(t, r)}); got != want {
				t.Errorf("got %s want %s", got, want)
			}
		})
	}
}

func TestProgramThatCannotStart(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	_, body := e.do("POST", "/v1/sandboxes/"+id+"/processes", `{"argv":["/no/such/program"]}`)
	got := events(t, body)
	if brief(got) != "exit:127 start_failed\n" || got[0].Message == nil {
		t.Errorf("%s", body)
	}
}

func TestServerShutdownEndsStreams(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	// Output and errors come by two pipes, in whatever order: half a line has to be
	// on its way before the other one is asked for.
	res, r := e.openStream(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec",
		`{"language":"bash","code":"trap 'echo >&2' USR1; echo go; sleep 0.1; printf half; while :; do sleep 0.05; done"}`)
	if ev := readEvent(t, r); ev.Type != "stdout" || string(ev.Data) != `"go"` {
		t.Fatalf("%+v", ev)
	}
	run := res.Header.Get("X-Run-Id")
	waitFor(t, 20*time.Second, "half a line was printed", func() bool {
		_, body := e.do("GET", "/v1/sandboxes/"+id+"/processes", "")
		var list rametv1.ProcessList
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Processes) == 1 && list.Processes[0].NextSeq > 2
	})
	if res, body := e.do("POST", "/v1/sandboxes/"+id+"/processes/"+run+"/signal", `{"signal":"USR1"}`); res.StatusCode != 204 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	ev := readEvent(t, r)
	for ev.Type == "stderr" && string(ev.Data) != `""` {
		ev = readEvent(t, r) // of the shell, whose sleep was interrupted
	}
	if ev.Type != "stderr" {
		t.Fatalf("%+v", ev)
	}
	e.api.Drain()
	if ev := readEvent(t, r); ev.Type != "stdout" || string(ev.Data) != `"half"` {
		t.Errorf("what was buffered is lost: %+v", ev)
	}
	if ev := readEvent(t, r); ev.Type != "stderr" || !strings.HasPrefix(string(ev.Data), `"[ramet] the server is shutting down`) {
		t.Errorf("%+v", ev)
	}
	if ev := readEvent(t, r); ev.Type != "stream_error" || *ev.Code != "shutting_down" {
		t.Errorf("%+v", ev)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the stream goes on")
	}
}

func TestExecOfAMachineThatDies(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	_, r := e.openStream(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec", `{"language":"bash","code":"echo go; sleep 60"}`)
	readEvent(t, r)
	e.machines.Crash(e.instance(id), "the machine was killed")
	// Whatever it still says, it does not make up an exit.
	for {
		ev := readEvent(t, r)
		if ev.Type == "stream_error" {
			if *ev.Code != "sandbox_failed" {
				t.Errorf("code %q, data %s", *ev.Code, ev.Data)
			}
			break
		}
		if ev.Type == "exit" && ev.Reason == nil {
			t.Fatalf("made up: %+v", ev)
		}
		if ev.Type == "exit" {
			return // the kill of the program itself came through first
		}
	}
}

func TestSilentGuestFailsTheCallAndIsMarked(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) { c.GuestTimeout = 200 * time.Millisecond }})
	id := e.create()
	e.machines.Silence(e.instance(id))
	begin := time.Now()
	res, body := e.do("GET", "/v1/sandboxes/"+id+"/files/stat?path=/root", "")
	if res.StatusCode != 503 || !strings.Contains(string(body), `"code":"guest_unreachable"`) || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	sb, err := e.client.GetSandboxWithResponse(t.Context(), id)
	if err != nil || sb.JSON200 == nil || sb.JSON200.Status != "running" || sb.JSON200.UnresponsiveSince == nil {
		t.Fatalf("%v %s", err, sb.Body)
	}
	e.machines.Unsilence(e.instance(id))
	if res, body := e.do("GET", "/v1/sandboxes/"+id+"/files/stat?path=/root", ""); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if sb, err = e.client.GetSandboxWithResponse(t.Context(), id); err != nil || sb.JSON200.UnresponsiveSince != nil {
		t.Errorf("still marked: %v %s", err, sb.Body)
	}
}

func TestBigCodeRuns(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	code := "cat >/dev/null <<'END'\n" + strings.Repeat("x", 70000) + "\nEND\necho ok"
	if got := brief(e.exec(id, code, "")); got != "stdout:\"ok\"\nexit:0\n" {
		t.Errorf("%s", got)
	}
	quoted, _ := json.Marshal(strings.Repeat("x", 9<<20))
	res, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"code":`+string(quoted)+`}`)
	if res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
)

func TestTerminal(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	base := "/v1/sandboxes/" + id + "/processes"
	script := `trap 'stty size; n=1' WINCH; stty size; until [ $n ]; do sleep 0.02; done; read -r line; echo "got $line"; exit 7`
	quoted, _ := json.Marshal([]string{"bash", "-c", script})
	res, r := e.openStream(t.Context(), "POST", base, `{"argv":`+string(quoted)+`,"pty":{"columns":80,"rows":24},"tag":"mine","detach":true}`)
	run := res.Header.Get("X-Run-Id")
	shown := ""
	until := func(text string) {
		t.Helper()
		for !strings.Contains(shown, text) {
			ev := readEvent(t, r)
			var s string
			if ev.Type == "stdout" && json.Unmarshal(ev.Data, &s) == nil {
				shown += s
			}
			if ev.Type == "exit" {
				shown += "exit " + string(ev.Data)
			}
		}
	}
	until("24 80\r\n")
	if res, body := e.do("POST", base+"/"+run+"/resize", `{"columns":132,"rows":50}`); res.StatusCode != 204 {
		t.Fatalf("resize: %d %s", res.StatusCode, body)
	}
	until("50 132\r\n")
	list, err := e.client.ListProcessesWithResponse(t.Context(), id)
	if err != nil || list.JSON200 == nil || len(list.JSON200.Processes) != 1 {
		t.Fatalf("%v %s", err, list.Body)
	}
	p := list.JSON200.Processes[0]
	if p.Pty == nil || !*p.Pty || p.Tag == nil || *p.Tag != "mine" || p.User == nil || *p.User != "root" || p.Cwd == nil || p.Detached == nil {
		t.Errorf("%+v", p)
	}
	// Follow it from what comes next. Its headers are there, so nothing from here on is missed.
	_, late := e.openStream(t.Context(), "GET", base+"/"+run+"/stream?latest=true", "")
	if res, body := e.do("POST", base+"/"+run+"/stdin", "hello\n", "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
		t.Fatalf("stdin: %d %s", res.StatusCode, body)
	}
	until("exit 7")
	seen := ""
	for ev := (rametv1.Event{}); ev.Type != "exit"; seen += string(ev.Data) {
		ev = readEvent(t, late)
	}
	if !strings.Contains(seen, "got hello") || strings.Contains(seen, "132") || !strings.HasSuffix(seen, "7") {
		t.Errorf("from the middle on: %s", seen)
	}
	for body, status := range map[string]int{`{"columns":80,"rows":24}`: 409, `{"columns":0,"rows":24}`: 400} {
		if res, text := e.do("POST", base+"/"+run+"/resize", body); res.StatusCode != status {
			t.Errorf("%s: %d %s", body, res.StatusCode, text)
		}
	}
	if _, body := e.do("GET", base+"/"+run+"/stream?latest=true", ""); brief(events(t, body)) != "exit:7\n" {
		t.Errorf("of one that has ended: %s", body)
	}
}

func TestResizeOfAProcessWithoutATerminal(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	base := "/v1/sandboxes/" + id + "/processes"
	res, r := e.openStream(t.Context(), "POST", base, `{"argv":["sleep","60"]}`)
	if ev := readEvent(t, r); ev.Type != "started" {
		t.Fatalf("%+v", ev)
	}
	res, body := e.do("POST", base+"/"+res.Header.Get("X-Run-Id")+"/resize", `{"columns":80,"rows":24}`)
	if res.StatusCode != 409 || !strings.Contains(string(body), "no terminal") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	checkError(t, res, body)
}

func TestDisconnectHangsUpATerminal(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	res, r := e.openStream(t.Context(), "POST", "/v1/sandboxes/"+id+"/processes",
		`{"argv":["bash","--norc","-i"],"pty":{"columns":80,"rows":24}}`)
	if ev := readEvent(t, r); ev.Type != "started" {
		t.Fatalf("%+v", ev)
	}
	res.Body.Close()
	waitFor(t, 10*time.Second, "the shell has ended", func() bool { return e.machines.Runs(e.instance(id)) == 0 })
}

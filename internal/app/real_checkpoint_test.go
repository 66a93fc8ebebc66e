//go:build integration

package app_test

import (
	"encoding/json"
	"testing"
	"time"
)

// TestRealRestoreWhileARunIsRunning: the stream of the run ends with the reason, and the
// state is that of the checkpoint.
func TestRealRestoreWhileARunIsRunning(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython(alive + `x = "then"; open("/root/note", "w").write("then")`)
	point := b.checkpoint("full")
	run := b.follow(`
x = "later"
open("/root/note", "w").write("later"); open("/root/new", "w").write("new")
print("begun", flush=True)
while True: time.sleep(.01)`)
	var r record
	b.s.call(t, "POST", b.path("/restore"), obj{"checkpoint": point}, &r)
	if r.ID != b.ID || r.Status != "running" {
		t.Errorf("the restored is %+v", r)
	}
	if e := last(t, run); e.Type != "stream_error" || e.Code != "sandbox_restored" {
		t.Errorf("the stream of the run ends with %+v", e)
	}
	const probe = `print(x, open("/root/note").read(), os.path.exists("/root/new"), lives())`
	if got := b.mustPython(probe); got != "then then False True\n" {
		t.Errorf("after the restore: %q", got)
	}
	b.checkClock("after the restore")
	// It can be restored again, and while its interpreter is idle.
	b.mustPython(`x = "again"`)
	b.s.call(t, "POST", b.path("/restore"), obj{"checkpoint": point}, nil)
	if got := b.mustPython(probe); got != "then then False True\n" {
		t.Errorf("after the second restore: %q", got)
	}
}

// TestRealCheckpointsOutliveTheirSandbox: what is started from one has its memory, or boots on its disk.
func TestRealCheckpointsOutliveTheirSandbox(t *testing.T) {
	s := realServer(t)
	b := s.create(t, obj{"metadata": obj{"k": "v"}})
	b.mustPython(alive + `x = 42; open("/root/note", "w").write("kept")`)
	full, disk := b.checkpoint("full"), b.checkpoint("disk")
	s.call(t, "DELETE", b.path(""), nil, nil)
	for range 2 {
		one := s.create(t, obj{"checkpoint": full})
		if got := one.mustPython(`x += 1; print(x, open("/root/note").read(), lives())`); got != "43 kept True\n" {
			t.Errorf("started from the full one: %q", got)
		}
		if r := one.record(); r.Origin != "checkpoint" || r.Parent != b.ID || r.BootNote != "" {
			t.Errorf("its record says %+v", r)
		}
		one.checkClock("started from the full one")
	}
	booted := s.create(t, obj{"checkpoint": disk})
	if got := booted.mustPython(`print(open("/root/note").read(), "x" in globals())`); got != "kept False\n" {
		t.Errorf("started from the one of the disk: %q", got)
	}
	if r := booted.record(); r.BootNote != "" {
		t.Errorf("a start from a disk is no fallback: %+v", r)
	}
}

func TestRealSpaceIsResumedOnce(t *testing.T) {
	s := realServer(t)
	b := s.create(t, obj{"persistent": true, "idle_timeout_s": 1})
	b.mustPython(alive + `x = "kept"; open("/root/note", "w").write("kept")`)
	var list struct {
		Spaces []struct{ ID, Sandbox, Status string }
	}
	space := ""
	eventually(t, 60*time.Second, "it is a Space", func() bool {
		s.call(t, "GET", "/v1/spaces", nil, &list)
		for _, sp := range list.Spaces {
			if sp.Sandbox == b.ID && sp.Status == "ready" {
				space = sp.ID
			}
		}
		return space != "" && b.record().Status == "stopped"
	})
	var r record
	s.call(t, "POST", "/v1/spaces/"+space+"/resume", obj{"idle_timeout_s": 0}, &r)
	fresh := b.of(r.ID)
	if r.ID == b.ID || r.Origin != "space" || r.Status != "running" {
		t.Errorf("the resumed is %+v", r)
	}
	fresh.checkClock("after the resume")
	if got := fresh.mustPython(`print(x, open("/root/note").read(), lives())`); got != "kept kept True\n" {
		t.Errorf("after the resume: %q", got)
	}
	for _, call := range []string{"POST /resume", "GET "} {
		method, path := "GET", ""
		if call != "GET " {
			method, path = "POST", "/resume"
		}
		if status, body := s.do(t, method, "/v1/spaces/"+space+path, nil); status != 404 {
			t.Errorf("%s of a Space that was resumed: %d %s", call, status, body)
		}
	}
	if status, _ := s.do(t, "POST", b.path("/exec"), obj{"code": "1"}); status/100 != 4 {
		t.Errorf("its former id answers %d", status)
	}
}

// TestRealMergeWithRunsInBoth: the winner's run goes on under the parent's id, the parent's
// ends with the reason.
func TestRealMergeWithRunsInBoth(t *testing.T) {
	b := realServer(t).create(t, nil)
	b.mustPython(alive + `x = "parent"`)
	winner := b.fork(1, nil)[0]
	of := winner.follow(`
x = "winner"
print("begun", flush=True)
while not os.path.exists("/root/go"): time.sleep(.01)
print("went on", flush=True)`)
	lost := b.follow(`
print("begun", flush=True)
while True: time.sleep(.01)`)
	var r record
	b.s.call(t, "POST", b.path("/merge_into/"+winner.ID), nil, &r)
	if r.ID != b.ID || r.Status != "running" {
		t.Errorf("the merged is %+v", r)
	}
	if e := last(t, lost); e.Type != "stream_error" || e.Code != "sandbox_merged" {
		t.Errorf("the stream of the parent's run ends with %+v", e)
	}
	b.s.call(t, "PUT", b.path("/files?path=/root/go"), nil, nil)
	var text string
	var end event
	deadline := time.After(time.Minute)
read:
	for {
		select {
		case e, ok := <-of:
			if !ok {
				break read
			}
			end = e
			if e.Type == "stdout" {
				if err := json.Unmarshal(e.Data, &text); err != nil {
					t.Fatal(err)
				}
			}
		case <-deadline:
			t.Fatal("the winner's run does not end")
		}
	}
	if end.Type != "exit" || string(end.Data) != "0" || text != "went on" {
		t.Errorf("the winner's run ended with %+v after %q", end, text)
	}
	if got := b.mustPython(`print(x, lives(), open("/etc/hostname").read().strip() == os.uname().nodename)`); got != "winner True True\n" {
		t.Errorf("after the merge: %q", got)
	}
	if status, body := b.s.do(t, "POST", winner.path("/exec"), obj{"code": "1"}); status != 404 {
		t.Errorf("the winner's id: %d %s", status, body)
	}
	b.checkClock("after the merge")
	b.hibernate()
	if got := b.mustPython("print(x, lives())"); got != "winner True\n" {
		t.Errorf("after a wake: %q", got)
	}
}

package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
)

func TestCheckpoints(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) { c.Retention.Checkpoints = time.Hour }})
	id := e.create()
	e.put(id, "a.txt", "then")
	of := "/v1/sandboxes/" + id + "/checkpoints"
	if list, _ := want[rametv1.CheckpointList](e, 200, "GET", of, ""); list.Checkpoints == nil || len(list.Checkpoints) != 0 {
		t.Errorf("%+v", list)
	}
	first, res := want[rametv1.Checkpoint](e, 201, "POST", of, `{"name":"first"}`)
	checkTiming(t, res, value(first.TimingsMs))
	if !strings.HasPrefix(first.Id, "ckp_") || len(first.Id) != 36 || first.Name != "first" || first.Kind != "full" || first.Status != "ready" ||
		first.Sandbox != id || first.PausedMs == nil || first.DirtyBytes == nil || first.ExpiresAt == nil || first.MemoryMb != 1024 {
		t.Fatalf("%+v", first)
	}
	second, _ := want[rametv1.Checkpoint](e, 201, "POST", of, `{"kind":"disk"}`)
	third, _ := want[rametv1.Checkpoint](e, 201, "POST", of, "")
	if second.Kind != "disk" || second.Name == "" || second.Name == third.Name {
		t.Errorf("%+v\n%+v", second, third)
	}
	for _, path := range []string{of, "/v1/checkpoints"} {
		var ids []string
		for cursor := ""; ; {
			page, _ := want[rametv1.CheckpointList](e, 200, "GET", path+"?limit=2&cursor="+cursor, "")
			for _, c := range page.Checkpoints {
				ids = append(ids, c.Id)
				if c.TimingsMs != nil || c.PausedMs != nil {
					t.Errorf("%+v", c)
				}
			}
			if cursor = value(page.NextCursor); cursor == "" {
				break
			}
		}
		if fmt.Sprint(ids) != fmt.Sprint([]string{third.Id, second.Id, first.Id}) {
			t.Errorf("%s: %v", path, ids)
		}
	}
	got, _ := want[rametv1.Checkpoint](e, 200, "GET", "/v1/checkpoints/"+strings.TrimPrefix(first.Id, "ckp_"), "")
	if got.Id != first.Id || got.PausedMs != nil {
		t.Errorf("%+v", got)
	}

	for _, c := range []struct {
		status int
		code   string
		body   string
	}{
		{400, "invalid_kind", `{"kind":"memory"}`},
		{400, "invalid_name", `{"name":"a b"}`},
		{400, "invalid_name", `{"name":"a/b"}`},
		{400, "invalid_name", `{"name":"` + strings.Repeat("x", 65) + `"}`},
		{400, "invalid_type", `{"delete_oldest":"yes"}`},
		{400, "unknown_field", `{"title":"a"}`},
		{409, "checkpoint_exists", `{"name":"first"}`},
	} {
		e.refused(c.status, c.code, "POST", of, c.body)
	}
	e.refused(400, "invalid_limit", "GET", of+"?limit=0", "")
	e.refused(400, "invalid_cursor", "GET", "/v1/checkpoints?cursor=x", "")
	e.refused(404, "sandbox_not_found", "GET", "/v1/sandboxes/sbx_00000000000000000000000000000000/checkpoints", "")
	e.refused(404, "checkpoint_not_found", "GET", "/v1/checkpoints/ckp_x", "")
	e.refused(404, "checkpoint_not_found", "GET", "/v1/checkpoints/"+strings.Replace(first.Id, "ckp_", "spc_", 1), "")
	e.refused(404, "space_not_found", "GET", "/v1/spaces/"+strings.TrimPrefix(first.Id, "ckp_"), "")

	// Another project's is not there.
	mine := e.key
	e.adminKey()
	e.key = e.keyOf("team-a").Key
	for _, method := range []string{"GET", "DELETE"} {
		e.refused(404, "checkpoint_not_found", method, "/v1/checkpoints/"+first.Id, "")
	}
	e.refused(404, "checkpoint_not_found", "POST", "/v1/sandboxes", `{"checkpoint":"`+first.Id+`"}`)
	if list, _ := want[rametv1.CheckpointList](e, 200, "GET", "/v1/checkpoints", ""); len(list.Checkpoints) != 0 {
		t.Errorf("%+v", list)
	}
	e.key = mine

	want[struct{}](e, 204, "DELETE", "/v1/checkpoints/"+second.Id, "")
	e.refused(404, "checkpoint_not_found", "GET", "/v1/checkpoints/"+second.Id, "")
}

func TestRestoreAndSpawn(t *testing.T) {
	e := start(t, options{})
	id, other := e.create(), e.create()
	e.put(id, "a.txt", "then")
	ckp, _ := want[rametv1.Checkpoint](e, 201, "POST", "/v1/sandboxes/"+id+"/checkpoints", `{}`)
	e.put(id, "a.txt", "now")
	e.refused(400, "checkpoint_of_another", "POST", "/v1/sandboxes/"+other+"/restore", `{"checkpoint":"`+ckp.Id+`"}`)
	e.refused(404, "checkpoint_not_found", "POST", "/v1/sandboxes/"+id+"/restore", `{"checkpoint":"x"}`)
	e.refused(400, "missing_checkpoint", "POST", "/v1/sandboxes/"+id+"/restore", `{}`)
	e.refused(400, "invalid_json", "POST", "/v1/sandboxes/"+id+"/restore", "")
	if got := e.read(id, "a.txt"); got != "now" {
		t.Errorf("%q after refused restores", got)
	}
	restored, res := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/restore", `{"checkpoint":"`+ckp.Id+`"}`)
	checkTiming(t, res, value(restored.TimingsMs))
	if restored.Id != id || restored.Origin != "create" || e.read(id, "a.txt") != "then" || e.machines.Running() != 2 {
		t.Errorf("%+v, %d machines", restored, e.machines.Running())
	}

	// The checkpoint outlives its sandbox.
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	e.refused(400, "invalid_shape", "POST", "/v1/sandboxes", `{"checkpoint":"`+ckp.Id+`","memory_mb":2048}`)
	spawned, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes", `{"checkpoint":"`+ckp.Id+`","metadata":{"a":"1"},"idle_timeout_s":0,"reseed":false}`)
	if value(spawned.Checkpoint) != ckp.Id || spawned.Metadata["a"] != "1" || e.read(spawned.Id, "a.txt") != "then" {
		t.Errorf("%+v", spawned)
	}
	e.refused(404, "checkpoint_not_found", "POST", "/v1/sandboxes", `{"checkpoint":"ckp_00000000000000000000000000000000"}`)
	list, _ := want[rametv1.CheckpointList](e, 200, "GET", "/v1/sandboxes/"+id+"/checkpoints", "")
	if len(list.Checkpoints) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestTooManyCheckpoints(t *testing.T) {
	e := start(t, options{})
	of := "/v1/sandboxes/" + e.create() + "/checkpoints"
	oldest, _ := want[rametv1.Checkpoint](e, 201, "POST", of, `{}`)
	for range 9 {
		want[rametv1.Checkpoint](e, 201, "POST", of, `{}`)
	}
	want[rametv1.Checkpoint](e, 201, "POST", of, `{"kind":"disk"}`)
	res, b := e.do("POST", of, `{}`)
	if res.StatusCode != 429 || !strings.Contains(string(b), `"too_many_checkpoints"`) || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", res.StatusCode, b)
	}
	newest, _ := want[rametv1.Checkpoint](e, 201, "POST", of, `{"delete_oldest":true}`)
	list, _ := want[rametv1.CheckpointList](e, 200, "GET", of, "")
	if len(list.Checkpoints) != 11 || list.Checkpoints[0].Id != newest.Id || list.Checkpoints[10].Id == oldest.Id {
		t.Errorf("%d: %+v", len(list.Checkpoints), list)
	}
}

func TestSpaces(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) { c.Retention.Spaces = time.Hour }})
	sb, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes", `{"persistent":true,"idle_timeout_s":1,"metadata":{"job":"42"}}`)
	if !sb.Persistent || sb.OnIdle != "space" {
		t.Fatalf("%+v", sb)
	}
	e.put(sb.Id, "a.txt", "kept")
	var space rametv1.Space
	waitFor(t, 20*time.Second, "a Space", func() bool {
		list, _ := want[rametv1.SpaceList](e, 200, "GET", "/v1/spaces", "")
		if len(list.Spaces) == 1 {
			space = list.Spaces[0]
		}
		return len(list.Spaces) == 1
	})
	if !strings.HasPrefix(space.Id, "spc_") || space.Sandbox != sb.Id || space.Metadata["job"] != "42" || space.ExpiresAt == nil || !space.Persistent {
		t.Errorf("%+v", space)
	}
	if got, _ := want[rametv1.Space](e, 200, "GET", "/v1/spaces/"+strings.TrimPrefix(space.Id, "spc_"), ""); got.Id != space.Id {
		t.Errorf("%+v", got)
	}
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+sb.Id+"/exec", `{"code":"1"}`)
	resume := "/v1/spaces/" + space.Id + "/resume"
	e.refused(400, "unknown_field", "POST", resume, `{"memory_mb":1}`)
	e.refused(400, "invalid_timeout", "POST", resume, `{"idle_timeout_s":-1}`)
	e.refused(400, "two_names", "POST", resume, `{"idle_timeout_s":1,"idle_timeout_seconds":1}`)
	resumed, res := want[rametv1.Sandbox](e, 201, "POST", resume, `{"idle_timeout_seconds":0,"egress":false,"persistent":true}`, "Idempotency-Key", "r")
	checkTiming(t, res, value(resumed.TimingsMs))
	if resumed.Id == sb.Id || resumed.State != "ready" || resumed.Origin != "space" || value(resumed.Space) != space.Id || value(resumed.Parent) != sb.Id ||
		resumed.IdleTimeoutS != 0 || resumed.Metadata["job"] != "42" || resumed.Egress || resumed.OnIdle != "space" {
		t.Errorf("%+v", resumed)
	}
	if got := e.read(resumed.Id, "a.txt"); got != "kept" {
		t.Errorf("%q", got)
	}
	// It is consumed, but who repeats the call hears the same.
	again, res := want[rametv1.Sandbox](e, 201, "POST", resume, `{"idle_timeout_seconds":0,"egress":false,"persistent":true}`, "Idempotency-Key", "r")
	if again.Id != resumed.Id || res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", again)
	}
	e.refused(404, "space_not_found", "POST", resume, "")
	e.refused(404, "space_not_found", "GET", "/v1/spaces/"+space.Id, "")
	e.refused(404, "space_not_found", "DELETE", "/v1/spaces/"+space.Id, "")
	if list, _ := want[rametv1.SpaceList](e, 200, "GET", "/v1/spaces", ""); list.Spaces == nil || len(list.Spaces) != 0 {
		t.Errorf("%+v", list)
	}
}

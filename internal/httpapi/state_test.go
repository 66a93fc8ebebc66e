package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rametv1 "ramet.dev/ramet/api/gen/rametv1"
	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

// want makes a call that has to answer with the status, and decodes the answer.
func want[T any](e *env, status int, method, path, body string, header ...string) (T, *http.Response) {
	e.t.Helper()
	var v T
	res, b := e.do(method, path, body, header...)
	if res.StatusCode != status {
		e.t.Fatalf("%s %s: %d %s, want %d", method, path, res.StatusCode, b, status)
	}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &v); err != nil {
			e.t.Fatalf("%s %s: %s: %v", method, path, b, err)
		}
	}
	return v, res
}

// refused makes a call that has to fail with the status and the code.
func (e *env) refused(status int, code, method, path, body string, header ...string) {
	e.t.Helper()
	got, _ := want[rametv1.Error](e, status, method, path, body, header...)
	if got.Code != code || got.Error == "" || got.RequestId == "" {
		e.t.Errorf("%s %s: %+v, want %s", method, path, got, code)
	}
}

// put writes a file into a sandbox, read returns it.
func (e *env) put(id, path, content string) {
	e.t.Helper()
	if res, b := e.do("PUT", "/v1/sandboxes/"+id+"/files?path="+path, content, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
		e.t.Fatalf("write %s: %d %s", path, res.StatusCode, b)
	}
}

func (e *env) read(id, path string) string {
	e.t.Helper()
	res, b := e.do("GET", "/v1/sandboxes/"+id+"/files?path="+path, "")
	if res.StatusCode != 200 {
		e.t.Fatalf("read %s: %d %s", path, res.StatusCode, b)
	}
	return string(b)
}

// checkTiming looks for the total in the header and in the body.
func checkTiming(t *testing.T, res *http.Response, ms map[string]float64) {
	t.Helper()
	if _, found := ms["total"]; !found || !strings.Contains(res.Header.Get("Server-Timing"), "total;dur=") {
		t.Errorf("timings %v, Server-Timing %q", ms, res.Header.Get("Server-Timing"))
	}
	for name := range ms {
		if !strings.Contains(res.Header.Get("Server-Timing"), name+";dur=") {
			t.Errorf("%s is not in Server-Timing %q", name, res.Header.Get("Server-Timing"))
		}
	}
}

func TestFork(t *testing.T) {
	e := start(t, options{})
	created, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes", `{"metadata":{"job":"42"},"egress":false,"idle_timeout_s":77}`)
	id := created.Id
	e.put(id, "a.txt", "hello")
	forked, res := want[rametv1.Forked](e, 201, "POST", "/v1/sandboxes/"+id+"/fork", `{"n":3}`)
	checkTiming(t, res, forked.TimingsMs)
	if len(forked.Children) != 3 || len(forked.Sandboxes) != 3 || e.machines.Running() != 4 {
		t.Fatalf("%+v, %d machines", forked, e.machines.Running())
	}
	seen := map[string]bool{id: true}
	for i, child := range forked.Sandboxes {
		if seen[child.Id] || child.Id != forked.Children[i] {
			t.Errorf("child %s of %v", child.Id, forked.Children)
		}
		seen[child.Id] = true
		if child.Origin != "fork" || value(child.Parent) != id || child.Status != "running" || child.State != "ready" ||
			child.Egress || child.IdleTimeoutS != 77 || child.Metadata["job"] != "42" {
			t.Errorf("%+v", child)
		}
		if got := e.read(child.Id, "a.txt"); got != "hello" {
			t.Errorf("%q in a child", got)
		}
	}
	e.put(forked.Children[0], "a.txt", "changed")
	if got := e.read(id, "a.txt") + e.read(forked.Children[1], "a.txt"); got != "hellohello" {
		t.Errorf("what a child writes others see: %q", got)
	}

	// One without a body, of a child, by its bare id.
	one, _ := want[rametv1.Forked](e, 201, "POST", "/v1/sandboxes/"+strings.TrimPrefix(forked.Children[0], "sbx_")+"/fork", "")
	if len(one.Children) != 1 || value(one.Sandboxes[0].Parent) != forked.Children[0] {
		t.Errorf("%+v", one)
	}
	for _, c := range []struct{ body, code string }{
		{`{"n":0}`, "invalid_n"},
		{`{"n":-1}`, "invalid_n"},
		{`{"n":33}`, "invalid_n"},
		{`{"n":1000000000}`, "invalid_n"},
		{`{"n":1e9}`, "invalid_type"},
		{`{"n":"2"}`, "invalid_type"},
		{`{"n":1.5}`, "invalid_type"},
		{`{"reseed":1}`, "invalid_type"},
		{`{"count":2}`, "unknown_field"},
		{`[]`, "invalid_json"},
	} {
		e.refused(400, c.code, "POST", "/v1/sandboxes/"+id+"/fork", c.body)
	}
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/sbx_1/fork", `{}`)
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+sandbox.NewID().String()+"/fork", `{}`)
	if e.machines.Running() != 5 {
		t.Errorf("%d machines after refused calls", e.machines.Running())
	}
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func TestRepeatedForkMakesNothingAgain(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	first, _ := want[rametv1.Forked](e, 201, "POST", "/v1/sandboxes/"+id+"/fork", `{"n":2}`, "Idempotency-Key", "f")
	again, res := want[rametv1.Forked](e, 201, "POST", "/v1/sandboxes/"+id+"/fork", `{"n":2}`, "Idempotency-Key", "f")
	if fmt.Sprint(first.Children) != fmt.Sprint(again.Children) || res.Header.Get("Idempotent-Replayed") != "true" || e.machines.Running() != 3 {
		t.Errorf("%v %v, %d machines", first.Children, again.Children, e.machines.Running())
	}
	e.refused(409, "idempotency_key_reused", "POST", "/v1/sandboxes/"+id+"/fork", `{"n":3}`, "Idempotency-Key", "f")
	one, _ := want[rametv1.Checkpoint](e, 201, "POST", "/v1/sandboxes/"+id+"/checkpoints", `{}`, "Idempotency-Key", "c")
	two, _ := want[rametv1.Checkpoint](e, 201, "POST", "/v1/sandboxes/"+id+"/checkpoints", `{}`, "Idempotency-Key", "c")
	if one.Id != two.Id {
		t.Errorf("%s %s", one.Id, two.Id)
	}
}

func TestMerge(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	forked, _ := want[rametv1.Forked](e, 201, "POST", "/v1/sandboxes/"+id+"/fork", `{"n":2}`)
	winner, sibling := forked.Children[0], forked.Children[1]
	e.put(winner, "won.txt", "won")
	e.refused(400, "unknown_field", "POST", "/v1/sandboxes/"+id+"/merge_into/"+winner, `{"force":true}`)
	e.refused(400, "merge_into_itself", "POST", "/v1/sandboxes/"+id+"/merge_into/"+strings.TrimPrefix(id, "sbx_"), "")
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+id+"/merge_into/x", "")
	merged, res := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/merge_into/"+winner, "")
	checkTiming(t, res, value(merged.TimingsMs))
	if merged.Id != id || merged.Status != "running" || e.read(id, "won.txt") != "won" {
		t.Errorf("%+v", merged)
	}
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+winner+"/exec", `{"code":"1"}`)
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+id+"/merge_into/"+winner, "")
	if sb, _ := want[rametv1.Sandbox](e, 200, "GET", "/v1/sandboxes/"+winner, ""); value(sb.MergedInto) != id || sb.Status != "stopped" {
		t.Errorf("%+v", sb)
	}
	if sb, _ := want[rametv1.Sandbox](e, 200, "GET", "/v1/sandboxes/"+sibling, ""); sb.Status != "running" || e.machines.Running() != 2 {
		t.Errorf("%+v, %d machines", sb, e.machines.Running())
	}
}

func TestHibernateAndWake(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) { c.Retention.Hibernated = time.Hour }})
	id := e.create()
	e.put(id, "a.txt", "still here")
	asleep, res := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/hibernate", "")
	checkTiming(t, res, value(asleep.TimingsMs))
	if asleep.Status != "hibernated" || asleep.State != "hibernated" || asleep.ExpiresAt == nil || e.machines.Running() != 0 {
		t.Fatalf("%+v, %d machines", asleep, e.machines.Running())
	}
	if left := time.Until(*asleep.ExpiresAt); left > time.Hour || left < 50*time.Minute {
		t.Errorf("it ends in %s", left)
	}
	again, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/hibernate", "")
	list, _ := want[rametv1.SandboxList](e, 200, "GET", "/v1/sandboxes?status=hibernated", "")
	if again.Status != "hibernated" || len(list.Sandboxes) != 1 || list.Sandboxes[0].ExpiresAt == nil {
		t.Errorf("%+v\n%+v", again, list)
	}
	// Whoever does not want to wake it does not, and what needs no machine does not either.
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/exec", `{"code":"1"}`},
		{"POST", "/processes", `{"argv":["true"]}`},
		{"GET", "/files?path=a.txt", ""},
		{"GET", "/metrics", ""},
		{"POST", "/fork", `{}`},
		{"POST", "/checkpoints", `{}`},
		{"POST", "/diff", `{"other":"` + id + `"}`},
	} {
		e.refused(409, "sandbox_hibernated", c.method, "/v1/sandboxes/"+id+c.path, c.body, "X-Ramet-Wake", "never")
	}
	e.refused(400, "invalid_wake", "POST", "/v1/sandboxes/"+id+"/exec", `{"code":"1"}`, "X-Ramet-Wake", "always")
	want[rametv1.Sandbox](e, 200, "PATCH", "/v1/sandboxes/"+id, `{"metadata":{"a":"1"}}`)
	want[rametv1.Lineage](e, 200, "GET", "/v1/lineage", "")
	want[rametv1.Usage](e, 200, "GET", "/v1/usage", "")
	if e.machines.Running() != 0 {
		t.Fatal("it woke")
	}
	// Any other call wakes it.
	if got := e.read(id, "a.txt"); got != "still here" || e.machines.Running() != 1 {
		t.Errorf("%q, %d machines", got, e.machines.Running())
	}
	want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/hibernate", "")
	awake, res := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/wake", "")
	checkTiming(t, res, value(awake.TimingsMs))
	if awake.Status != "running" || awake.ExpiresAt != nil || awake.Metadata["a"] != "1" {
		t.Errorf("%+v", awake)
	}
	if awake, _ = want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes/"+id+"/wake", `{}`); awake.Status != "running" {
		t.Errorf("%+v", awake)
	}
	e.refused(400, "unknown_field", "POST", "/v1/sandboxes/"+id+"/wake", `{"timeout":1}`)
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/sbx_x/wake", "")
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+id+"/wake", "")
}

func TestIdleSandboxesHibernate(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) { c.IdleTimeout = 300 * time.Millisecond }})
	id := e.create()
	never, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes", `{"idle_timeout_s":0}`)
	if never.IdleTimeoutS != 0 {
		t.Errorf("%+v", never)
	}
	waitFor(t, 20*time.Second, "the idle sandbox hibernates", func() bool {
		sb, _ := want[rametv1.Sandbox](e, 200, "GET", "/v1/sandboxes/"+id, "")
		return sb.Status == "hibernated"
	})
	if sb, _ := want[rametv1.Sandbox](e, 200, "GET", "/v1/sandboxes/"+never.Id, ""); sb.Status != "running" {
		t.Errorf("%+v", sb)
	}
}

func TestLineageIsOfTheFamily(t *testing.T) {
	e := start(t, options{})
	id, stranger := e.create(), e.create()
	ckp, _ := want[rametv1.Checkpoint](e, 201, "POST", "/v1/sandboxes/"+id+"/checkpoints", `{"name":"a"}`)
	spawned, _ := want[rametv1.Sandbox](e, 200, "POST", "/v1/sandboxes", `{"checkpoint":"`+ckp.Id+`"}`)
	e.do("DELETE", "/v1/sandboxes/"+id, "")
	family, _ := want[rametv1.Lineage](e, 200, "GET", "/v1/lineage?sandbox="+spawned.Id, "")
	if len(family.Sandboxes) != 2 || len(family.Checkpoints) != 1 || family.Checkpoints[0].Id != ckp.Id {
		t.Errorf("%+v", family)
	}
	if spawned.Origin != "checkpoint" || value(spawned.Checkpoint) != ckp.Id || value(spawned.Parent) != id || spawned.Space != nil {
		t.Errorf("%+v", spawned)
	}
	all, _ := want[rametv1.Lineage](e, 200, "GET", "/v1/lineage", "")
	if len(all.Sandboxes) != 3 {
		t.Errorf("%+v", all)
	}
	e.refused(404, "sandbox_not_found", "GET", "/v1/lineage?sandbox=x", "")
	e.adminKey()
	other := e.keyOf("team-a")
	e.key = other.Key
	e.refused(404, "sandbox_not_found", "GET", "/v1/lineage?sandbox="+stranger, "")
	if none, _ := want[rametv1.Lineage](e, 200, "GET", "/v1/lineage", ""); len(none.Sandboxes)+len(none.Checkpoints) != 0 {
		t.Errorf("another project sees %+v", none)
	}
}

func TestDiff(t *testing.T) {
	e := start(t, options{})
	id := e.create()
	for _, f := range []string{"same", "gone", "changed"} {
		e.put(id, f, f)
	}
	forked, _ := want[rametv1.Forked](e, 201, "POST", "/v1/sandboxes/"+id+"/fork", `{}`)
	child := forked.Children[0]
	e.put(child, "changed", "CHANGED")
	e.put(child, "new", "new")
	if res, b := e.do("DELETE", "/v1/sandboxes/"+child+"/files?path=gone", ""); res.StatusCode != 204 {
		t.Fatalf("%d %s", res.StatusCode, b)
	}
	d, _ := want[rametv1.Diff](e, 200, "POST", "/v1/sandboxes/"+id+"/diff", `{"other":"`+child+`","paths":["/root"]}`)
	if fmt.Sprint(d.Added, d.Removed, d.Modified, d.Truncated) != "[/root/new] [/root/gone] [/root/changed] false" {
		t.Errorf("%+v", d)
	}
	if _, b := e.do("POST", "/v1/sandboxes/"+id+"/diff", `{"other":"`+id+`","paths":["/root"]}`); string(b) != `{"added":[],"modified":[],"removed":[],"truncated":false}`+"\n" {
		t.Errorf("%s", b)
	}
	e.refused(400, "missing_other", "POST", "/v1/sandboxes/"+id+"/diff", `{}`)
	e.refused(400, "invalid_type", "POST", "/v1/sandboxes/"+id+"/diff", `{"other":"`+child+`","paths":"/root"}`)
	e.refused(404, "sandbox_not_found", "POST", "/v1/sandboxes/"+id+"/diff", `{"other":"x"}`)
	paths := strings.TrimSuffix(strings.Repeat(`"/root",`, 101), ",")
	e.refused(400, "too_many_paths", "POST", "/v1/sandboxes/"+id+"/diff", `{"other":"`+child+`","paths":[`+paths+`]}`)
}

func TestGarbageCollectionIsForAdmins(t *testing.T) {
	e := start(t, options{})
	e.refused(403, "admin_only", "POST", "/v1/gc", `{"dry_run":true}`)
	e.adminKey()
	e.refused(400, "unknown_field", "POST", "/v1/gc", `{"dryrun":true}`)
	if report, _ := want[rametv1.GCReport](e, 200, "POST", "/v1/gc", `{"dry_run":true}`); !report.DryRun || report.Bytes != 0 {
		t.Errorf("%+v", report)
	}
	if _, b := e.do("POST", "/v1/gc", ""); string(b) != `{"bytes":0,"dry_run":false,"instances":[],"snapshots":[]}`+"\n" {
		t.Errorf("%s", b)
	}
}

func TestRetentionOfAProject(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) {
		c.Retention = sandbox.Retention{Hibernated: 30 * 24 * time.Hour, Spaces: 20 * 24 * time.Hour, Checkpoints: 0}
	}})
	e.adminKey()
	kept := func(p rametv1.Project) string {
		return fmt.Sprint(p.RetainHibernatedS, p.RetainSpacesS, p.RetainCheckpointsS, p.MaxSandboxes)
	}
	for _, c := range []struct{ body, want string }{
		{`{"max_sandboxes":5}`, "2592000 1728000 0 5"},
		{`{"retain_hibernated_s":60,"retain_spaces_s":-1,"retain_checkpoints_s":3600}`, "60 0 3600 5"},
		{`{"retain_spaces_s":0,"max_sandboxes":6}`, "60 1728000 3600 6"},
		{`{}`, "60 1728000 3600 6"},
	} {
		if p, _ := want[rametv1.Project](e, 200, "PUT", "/v1/projects/team-a", c.body); kept(p) != c.want {
			t.Errorf("%s: %s, want %s", c.body, kept(p), c.want)
		}
	}
	if p, _ := want[rametv1.Project](e, 200, "GET", "/v1/projects/team-a", ""); kept(p) != "60 1728000 3600 6" {
		t.Error(kept(p))
	}
	for _, n := range []string{"-2", "316224001", "9223372036854775807"} {
		e.refused(400, "invalid_retention", "PUT", "/v1/projects/team-a", `{"max_sandboxes":9,"retain_spaces_s":`+n+`}`)
	}
	if p, _ := want[rametv1.Project](e, 200, "GET", "/v1/projects/team-a", ""); p.MaxSandboxes != 6 {
		t.Error("a refused call has changed the quota")
	}
}

package e2b_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

func TestSnapshotsAndForks(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(`{"templateID":"base","metadata":{"of":"parent"},"envVars":{"A":"1"}}`))
	plain := e.do("POST", "/sandboxes/"+id+"/snapshots", "")
	if plain.status != 201 || fmt.Sprint(plain.object(t)["names"]) != "[]" {
		t.Fatalf("snapshot: %d %s", plain.status, plain.body)
	}
	named := e.do("POST", "/sandboxes/"+id+"/snapshots", `{"name":"ready","memory":false}`).object(t)
	e.do("POST", "/sandboxes/"+id+"/snapshots", `{"name":"ready"}`).fails(t, "a name again", 409, "")
	e.do("POST", "/sandboxes/"+id+"/snapshots", `{"name":"a b"}`).fails(t, "a bad name", 400, "name")
	for _, template := range []string{plain.object(t)["snapshotID"].(string), named["snapshotID"].(string), "ready", "ready:default"} {
		sb := e.record(e.id(e.create(`{"templateID":"` + template + `","timeout":60}`)))
		if sb.Origin != sandbox.OriginCheckpoint || sb.Env["A"] != "1" || len(sb.Metadata) != 0 || e.left(sb.ID.Alphanumeric()) != time.Minute {
			t.Errorf("%s: the record is %+v", template, sb)
		}
	}
	first := e.do("GET", "/snapshots?limit=1&sandboxID="+id, "")
	rest := e.do("GET", "/snapshots?limit=1&sandboxID="+id+"&nextToken="+first.head.Get("X-Next-Token"), "")
	if first.list(t)[0]["snapshotID"] != named["snapshotID"] || rest.list(t)[0]["snapshotID"] != plain.object(t)["snapshotID"] || rest.head.Get("X-Next-Token") != "" {
		t.Errorf("the pages are %s and %s", first.body, rest.body)
	}
	if list := e.do("GET", "/snapshots?sandboxID=nope", "").list(t); len(list) != 0 {
		t.Errorf("nobody's snapshots: %v", list)
	}
	for _, want := range []int{204, 404} {
		if a := e.do("DELETE", "/templates/ready", ""); a.status != want {
			t.Errorf("delete: %d %s", a.status, a.body)
		}
	}
	e.do("DELETE", "/templates/base", "").fails(t, "a delete of a template", 501, "ramet template rm")

	a := e.do("POST", "/sandboxes/"+id+"/fork", `{"count":3,"timeout":120}`)
	list := a.list(t)
	if a.status != 201 || len(list) != 3 {
		t.Fatalf("fork: %d %s", a.status, a.body)
	}
	tokens := map[any]bool{e.do("GET", "/sandboxes/"+id, "").object(t)["envdAccessToken"]: true}
	for _, f := range list {
		child := f["sandbox"].(map[string]any)
		tokens[child["envdAccessToken"]] = true
		if left := e.left(e.id(child)); left != 2*time.Minute || f["error"] != nil {
			t.Errorf("a child has %s left: %v", left, f)
		}
	}
	if len(tokens) != 4 {
		t.Errorf("there are %d tokens for 4 sandboxes", len(tokens))
	}
	for _, body := range []string{`{"count":0}`, `{"count":-1}`, `{"count":21}`, `{"count":1,"timeout":0}`} {
		e.do("POST", "/sandboxes/"+id+"/fork", body).fails(t, body, 400, "")
	}
}

func TestNetworkUpdateReplacesAll(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	for _, c := range []struct {
		body string
		on   bool
		want sandbox.EgressPolicy
	}{
		{
			`{"allowOut":["example.com"],"denyOut":["0.0.0.0/0"],"rules":{"example.com":[{}]}}`, true,
			sandbox.EgressPolicy{Allow: []string{"example.com"}, Deny: []string{"0.0.0.0/0"}, Order: sandbox.EgressAllowFirst},
		},
		{`{"denyOut":["203.0.113.0/24"]}`, true, sandbox.EgressPolicy{Deny: []string{"203.0.113.0/24"}, Order: sandbox.EgressAllowFirst}},
		{`{"allow_internet_access":false}`, false, sandbox.EgressPolicy{}},
		{`{"allow_internet_access":true}`, true, sandbox.EgressPolicy{}},
		{`{}`, true, sandbox.EgressPolicy{}},
	} {
		if a := e.do("PUT", "/sandboxes/"+id+"/network", c.body); a.status != 204 {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
			continue
		}
		sb := e.record(id)
		on, policy := e.machines.Egress(sb.Instance)
		c.want.Order = policy.Order // where there are no rules it says nothing
		if on != c.on || !policy.Equal(c.want) {
			t.Errorf("%s: the machine has %v %+v", c.body, on, policy)
		}
	}
	for body, status := range map[string]int{
		`{"denyOut":["x y"]}`: 400, `{"denyOut":"x"}`: 400, `{"egressProxy":{"address":"a:1"}}`: 501, `{"allowPublicTraffic":false}`: 501,
		`{"rules":{"a.com":[{"transform":{"headers":{"a":"b"}}}]}}`: 501,
	} {
		e.do("PUT", "/sandboxes/"+id+"/network", body).fails(t, body, status, "")
	}
}

func TestMetricsAndLogs(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	list := e.do("GET", "/sandboxes/"+id+"/metrics", "").list(t)
	if len(list) != 1 {
		t.Fatalf("%d samples", len(list))
	}
	for _, f := range []string{"timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"} {
		if _, ok := list[0][f]; !ok {
			t.Errorf("there is no %s", f)
		}
	}
	if list := e.do("GET", "/sandboxes/"+id+"/metrics?start=1000&end=2000", "").list(t); len(list) != 0 {
		t.Errorf("the past has %v", list)
	}
	all := e.do("GET", "/sandboxes/metrics?sandbox_ids="+id+",nope", "").object(t)["sandboxes"].(map[string]any)
	if len(all) != 1 || all[id] == nil {
		t.Errorf("metrics of all: %v", all)
	}
	var logs struct {
		Logs []struct{ Level, Message string }
	}
	a := e.do("GET", "/v2/sandboxes/"+id+"/logs?direction=backward&limit=1", "")
	if err := json.Unmarshal(a.body, &logs); err != nil || len(logs.Logs) != 1 || !strings.HasPrefix(logs.Logs[0].Message, "running") {
		t.Errorf("logs: %s", a.body)
	}
	if a := e.do("GET", "/sandboxes/"+id+"/logs", ""); len(a.object(t)["logs"].([]any)) < 2 {
		t.Errorf("old logs: %s", a.body)
	}
}

func TestWhatIsNotThereSaysSo(t *testing.T) {
	e := start(t, options{})
	for _, c := range []string{
		"GET /templates", "POST /v3/templates", "POST /v2/templates/x/builds/y", "GET /templates/x/builds/y/status", "POST /templates/tags",
		"GET /volumes", "POST /volumes", "GET /secrets", "POST /access-tokens", "GET /api-keys", "GET /nodes", "PATCH /v2/templates/x",
	} {
		method, path, _ := strings.Cut(c, " ")
		e.do(method, path, "").fails(t, c, 501, "not supported")
		e.do(method, path, "", "X-Api-Key", "-").fails(t, c+" without a key", 401, "")
	}
	if a := e.do("GET", "/templates/aliases/base", ""); a.status != 200 {
		t.Errorf("the alias base: %d %s", a.status, a.body)
	}
	e.do("GET", "/templates/aliases/nope", "").fails(t, "an alias that is not there", 404, "not found")
	if a := e.do("GET", "/health", "", "X-Api-Key", "-"); a.status != 200 {
		t.Errorf("health: %d", a.status)
	}
}

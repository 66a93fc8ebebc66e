package e2b_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/internal/control"
	"ramet.dev/ramet/internal/sandbox"
)

const base = `{"templateID":"base"}`

// left is how long a sandbox runs that has a deadline, in whole minutes.
func (e *env) left(id string) time.Duration {
	e.t.Helper()
	sb := e.record(id)
	if sb.EndsAt.IsZero() {
		return 0
	}
	return time.Until(sb.EndsAt).Round(time.Minute)
}

func TestCreateOfBothGenerations(t *testing.T) {
	e := start(t, options{domain: "sandboxes.example.com"})
	for _, c := range []struct {
		path, body string
		ends       time.Duration
	}{
		{"/sandboxes", `{"templateID":"base","secure":true}`, 15 * time.Second},
		{"/v2/sandboxes", base, 300 * time.Second},
		{"/v2/sandboxes", `{"templateID":"base","timeout":600,"unknown":{"field":1}}`, 600 * time.Second},
		{"/sandboxes", `{"templateID":"base:latest","timeout":3600,"metadata":{},"envVars":null}`, time.Hour},
	} {
		before := time.Now()
		a := e.do("POST", c.path, c.body)
		if a.status != 201 {
			t.Fatalf("%s: %d %s", c.body, a.status, a.body)
		}
		o := a.object(t)
		sb := e.record(e.id(o))
		if ends := sb.EndsAt.Sub(before); ends < c.ends || ends > c.ends+30*time.Second {
			t.Errorf("%s: it ends after %s", c.body, ends)
		}
		if sb.IdleTimeout != 0 || sb.MaxLifetime != 0 || !sb.Deadline.ManualWake || sb.Deadline.Then != sandbox.AtEndDelete {
			t.Errorf("%s: the record is %+v", c.body, sb)
		}
		if o["templateID"] != "base" || o["envdVersion"] != "0.6.3" || o["domain"] != "sandboxes.example.com" || o["clientID"] == "" || o["isolation"] != "emulated" ||
			len(o["envdAccessToken"].(string)) != 64 || o["trafficAccessToken"] != nil || !strings.HasPrefix(e.id(o), "i") {
			t.Errorf("%s: the answer is %s", c.body, a.body)
		}
	}
}

func TestCreateTakesOverWhatItIsTold(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(`{"templateID":"base","autoPause":true,"autoPauseMemory":false,"metadata":{"a":"b"},"envVars":{"X":"y"},
		"network":{"allowPublicTraffic":false,"allowOut":["Example.com"],"denyOut":["0.0.0.0/0"]}}`))
	sb := e.record(id)
	if sb.Deadline.Then != sandbox.AtEndHibernateDisk || sb.Env["X"] != "y" || sb.Metadata["a"] != "b" || !sb.PrivatePorts || !sb.Egress {
		t.Errorf("the record is %+v", sb)
	}
	want := sandbox.EgressPolicy{Allow: []string{"example.com"}, Deny: []string{"0.0.0.0/0"}, Order: sandbox.EgressAllowFirst}
	if !sb.EgressPolicy.Equal(want) {
		t.Errorf("the policy is %+v", sb.EgressPolicy)
	}
	o := e.do("GET", "/sandboxes/"+id, "").object(t)
	if o["lifecycle"].(map[string]any)["onTimeout"] != "pause" || o["network"].(map[string]any)["allowPublicTraffic"] != false || o["state"] != "running" {
		t.Errorf("shown is %v", o)
	}
	open := e.record(e.id(e.create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true},"autoPauseMemory":true}`)))
	if open.Deadline.ManualWake || open.Deadline.Then != sandbox.AtEndHibernate || open.PrivatePorts {
		t.Errorf("the record is %+v", open)
	}
	closed := e.record(e.id(e.create(`{"templateID":"base","allow_internet_access":false}`)))
	if closed.Egress {
		t.Error("it has a network")
	}
	some := e.record(e.id(e.create(`{"templateID":"base","allow_internet_access":false,"network":{"allowOut":["a.example"]}}`)))
	if !some.Egress || some.EgressPolicy.Deny[0] != "0.0.0.0/0" || some.EgressPolicy.Order != sandbox.EgressAllowFirst {
		t.Errorf("the policy is %+v", some.EgressPolicy)
	}
}

func TestOmittedBooleansAreNotFalse(t *testing.T) {
	e := start(t, options{})
	sb := e.record(e.id(e.create(`{"templateID":"base","network":{}}`)))
	if sb.PrivatePorts || !sb.Egress {
		t.Errorf("private %v, egress %v", sb.PrivatePorts, sb.Egress)
	}
	id := sb.ID.Alphanumeric()
	if a := e.do("POST", "/sandboxes/"+id+"/pause", "{}"); a.status != 204 {
		t.Fatalf("pause: %d %s", a.status, a.body)
	}
	if a := e.do("POST", "/v2/sandboxes/"+id+"/connect", ""); a.status != 201 {
		t.Fatalf("connect: %d %s", a.status, a.body)
	}
	if note := e.record(id).BootNote; note != "" {
		t.Errorf("memory was not kept: %s", note)
	}
}

func TestBadCreates(t *testing.T) {
	e := start(t, options{})
	for body, c := range map[string]struct {
		status  int
		message string
	}{
		`{}`:                          {400, "templateID"},
		``:                            {400, "templateID"},
		`[]`:                          {400, "cannot be array"},
		`{"`:                          {400, "JSON"},
		"{\"templateID\":\"\xff\"}":   {400, "UTF-8"},
		`{"templateID":7}`:            {400, "templateID"},
		`{"templateID":"nope"}`:       {404, "not found"},
		`{"templateID":"team/No Pe"}`: {404, "not found"},
		`{"templateID":"ckp_00000000000000000000000000000000"}`:                                        {404, "not found"},
		`{"templateID":"base","timeout":0}`:                                                            {400, "timeout"},
		`{"templateID":"base","timeout":-1}`:                                                           {400, "timeout"},
		`{"templateID":"base","timeout":1e3}`:                                                          {400, "timeout"},
		`{"templateID":"base","timeout":1.5}`:                                                          {400, "timeout"},
		`{"templateID":"base","timeout":999999999999}`:                                                 {400, "timeout"},
		`{"templateID":"base","timeout":9999999999999999999999}`:                                       {400, "timeout"},
		`{"templateID":"base","mcp":{"x":{}}}`:                                                         {501, "mcp"},
		`{"templateID":"base","iam":{"tokens":{"a":{}}}}`:                                              {501, "iam"},
		`{"templateID":"base","volumeMounts":[{"name":"a"}]}`:                                          {501, "volumeMounts"},
		`{"templateID":"base","autoResume":{"enabled":true}}`:                                          {400, "autoResume"},
		`{"templateID":"base","network":{"egressProxy":{"address":"a:1"}}}`:                            {501, "egressProxy"},
		`{"templateID":"base","network":{"dnsServers":[]}}`:                                            {501, "dnsServers"},
		`{"templateID":"base","network":{"httpsPorts":[1]}}`:                                           {501, "httpsPorts"},
		`{"templateID":"base","network":{"maskRequestHost":"x"}}`:                                      {501, "maskRequestHost"},
		`{"templateID":"base","network":{"rules":{"a.com":[{"transform":{"headers":{"a":"b"}}}]}}}`:    {501, "rules"},
		`{"templateID":"base","network":{"denyOut":["no rule"]}}`:                                      {400, ""},
		`{"templateID":"base","metadata":{"":"x"}}`:                                                    {400, "metadata"},
		`{"templateID":"base","envVars":{"A=":"x"}}`:                                                   {400, "env"},
		`{"templateID":"base","x":"` + strings.Repeat("x", 1<<20) + `"}`:                               {400, "too large"},
		`{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`: {400, "autoResume"},
	} {
		name := body[:min(len(body), 90)]
		for _, path := range []string{"/sandboxes", "/v2/sandboxes"} {
			if path == "/sandboxes" && strings.Contains(body, "1e3") {
				continue
			}
			a := e.do("POST", path, body)
			a.fails(t, path+" "+name, c.status, c.message)
		}
	}
	// null is as good as nothing.
	e.create(`{"templateID":"base","mcp":null,"iam":null,"network":null,"timeout":null,"autoPause":null,"volumeMounts":[],"autoResume":null}`)
}

func TestCreateIsIdempotent(t *testing.T) {
	e := start(t, options{})
	first := e.do("POST", "/v2/sandboxes", base, "Idempotency-Key", "k1").object(t)
	again := e.do("POST", "/v2/sandboxes", base, "Idempotency-Key", "k1").object(t)
	if e.id(first) != e.id(again) {
		t.Error("two sandboxes were made")
	}
	e.do("POST", "/v2/sandboxes", `{"templateID":"base","timeout":7}`, "Idempotency-Key", "k1").fails(t, "another body", 409, "key")
}

func TestQuotaIs429AndNotTriedAgain(t *testing.T) {
	e := start(t, options{control: func(c *control.Config) { c.Quota.Sandboxes = 1 }})
	id := e.id(e.create(base))
	a := e.do("POST", "/v2/sandboxes", base)
	a.fails(t, "a second one", 429, "")
	if a.head.Get("Should-Retry") != "false" {
		t.Error("the client would try again by itself")
	}
	// A fork tells it of each child.
	a = e.do("POST", "/sandboxes/"+id+"/fork", `{"count":2}`)
	list := a.list(t)
	if a.status != 201 || len(list) != 2 || list[1]["error"].(map[string]any)["code"] != float64(429) || list[0]["sandbox"] != nil {
		t.Errorf("fork: %d %s", a.status, a.body)
	}
}

func TestConnect(t *testing.T) {
	e := start(t, options{})
	for _, v := range []string{"/sandboxes/", "/v2/sandboxes/"} {
		id := e.id(e.create(`{"templateID":"base","timeout":3600}`))
		if a := e.do("POST", v+id+"/connect", `{"timeout":60}`); a.status != 200 || e.id(a.object(t)) != id {
			t.Errorf("%s: %d %s", v, a.status, a.body)
		}
		if left := e.left(id); left != time.Hour {
			t.Errorf("%s: a connect for less time left %s", v, left)
		}
		if a := e.do("POST", v+id+"-ramet/connect", `{"timeout":7200}`); a.status != 200 {
			t.Errorf("%s with an old id: %d %s", v, a.status, a.body)
		}
		if left := e.left(id); left != 2*time.Hour {
			t.Errorf("%s: a connect for more time left %s", v, left)
		}
		e.do("POST", "/sandboxes/"+id+"/pause", "")
		if a := e.do("POST", v+id+"/connect", `{"timeout":120}`); a.status != 201 {
			t.Errorf("%s of a paused one: %d %s", v, a.status, a.body)
		}
		if left := e.left(id); left != 2*time.Minute {
			t.Errorf("%s of a paused one left %s", v, left)
		}
		for _, timeout := range []string{"0", "-1", "99999999999"} {
			e.do("POST", v+id+"/connect", `{"timeout":`+timeout+`}`).fails(t, "timeout "+timeout, 400, "timeout")
		}
		e.do("DELETE", "/sandboxes/"+id, "")
		e.do("POST", v+id+"/connect", "{}").fails(t, "one that is gone", 404, "not found")
	}
}

func TestResumeOfOldClients(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	e.do("POST", "/sandboxes/"+id+"/resume", `{"timeout":60}`).fails(t, "one that runs", 409, "running")
	e.do("POST", "/sandboxes/"+id+"/pause", "")
	if a := e.do("POST", "/sandboxes/"+id+"/resume", `{"timeout":60,"autoPause":true}`); a.status != 201 {
		t.Fatalf("resume: %d %s", a.status, a.body)
	}
	if sb := e.record(id); e.left(id) != time.Minute || sb.Deadline.Then != sandbox.AtEndHibernate {
		t.Errorf("the record is %+v", sb.Deadline)
	}
}

func TestPause(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(`{"templateID":"base","timeout":3600}`))
	a := e.do("POST", "/sandboxes/"+id+"/pause", `{"memory":false}`)
	if a.status != 204 || len(a.body) != 0 {
		t.Fatalf("pause: %d %s", a.status, a.body)
	}
	e.do("POST", "/sandboxes/"+id+"/pause", "").fails(t, "a second pause", 409, "")
	o := e.do("GET", "/sandboxes/"+id, "").object(t)
	if o["state"] != "paused" || !e.record(id).EndsAt.IsZero() {
		t.Errorf("it is %v and ends at %s", o["state"], e.record(id).EndsAt)
	}
	if end, err := time.Parse(time.RFC3339, o["endAt"].(string)); err != nil || time.Since(end) > time.Minute {
		t.Errorf("it was paused at %v, %v", o["endAt"], err)
	}
	e.do("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).fails(t, "a timeout of a paused one", 404, "paused")
	e.do("POST", "/sandboxes/"+id+"/snapshots", `{}`).fails(t, "a snapshot of a paused one", 409, "")
	e.do("POST", "/sandboxes/"+id+"/fork", `{}`).fails(t, "a fork of a paused one", 409, "")
	if list := e.do("GET", "/sandboxes/"+id+"/metrics", "").list(t); len(list) != 0 {
		t.Errorf("a paused one uses %v", list)
	}
	e.do("POST", "/sandboxes/"+id+"/connect", "")
	if note := e.record(id).BootNote; note == "" {
		t.Error("its memory was kept")
	}
	e.do("POST", "/sandboxes/nope/pause", "").fails(t, "one that is not there", 404, "not found")
}

func TestTimeouts(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	for _, c := range []struct {
		path, body string
		left       time.Duration
	}{
		{"timeout", `{"timeout":3600}`, time.Hour},
		{"timeout", `{"timeout":600}`, 10 * time.Minute},
		{"refreshes", `{"duration":60}`, 10 * time.Minute},
		{"refreshes", `{"duration":1200}`, 20 * time.Minute},
	} {
		if a := e.do("POST", "/sandboxes/"+id+"/"+c.path, c.body); a.status != 204 || len(a.body) != 0 {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
		if left := e.left(id); left != c.left {
			t.Errorf("%s %s left %s", c.path, c.body, left)
		}
	}
	for _, body := range []string{`{}`, ``, `{"timeout":null}`, `{"timeout":-1}`, `{"timeout":"1"}`, `{"timeout":99999999999}`} {
		e.do("POST", "/sandboxes/"+id+"/timeout", body).fails(t, body, 400, "timeout")
	}
	if left := e.left(id); left != 20*time.Minute {
		t.Errorf("what was refused left %s", left)
	}
	e.do("POST", "/sandboxes/"+id+"/timeout", `{"timeout":0}`)
	waitFor(t, "a timeout of 0 ends it", func() bool { return e.do("GET", "/sandboxes/"+id, "").status == 404 })
	e.do("POST", "/sandboxes/"+id+"/timeout", `{"timeout":60}`).fails(t, "one that is gone", 404, "not found")
}

func TestKill(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	if a := e.do("DELETE", "/sandboxes/"+id, ""); a.status != 204 || len(a.body) != 0 {
		t.Errorf("kill: %d %s", a.status, a.body)
	}
	e.do("DELETE", "/sandboxes/"+id, "").fails(t, "a second kill", 404, "not found")
	e.do("GET", "/sandboxes/"+id, "").fails(t, "one that is gone", 404, "not found")
	// Every state can be deleted.
	paused := e.id(e.create(base))
	e.do("POST", "/sandboxes/"+paused+"/pause", "")
	if a := e.do("DELETE", "/sandboxes/"+paused, ""); a.status != 204 {
		t.Errorf("kill of a paused one: %d %s", a.status, a.body)
	}
}

func TestListPagesFiltersAndOrder(t *testing.T) {
	e := start(t, options{})
	var made []string
	for i := range 5 {
		made = append(made, e.id(e.create(fmt.Sprintf(`{"templateID":"base","metadata":{"n":"%d","odd":"ä &=%%+"}}`, i%2))))
	}
	e.do("POST", "/sandboxes/"+made[0]+"/pause", "")
	pages := func(query string) (all []string, n int) {
		next := ""
		for {
			a := e.do("GET", "/v2/sandboxes?"+query+"&nextToken="+next, "")
			if a.status != 200 {
				t.Fatalf("%s: %d %s", query, a.status, a.body)
			}
			for _, o := range a.list(t) {
				all = append(all, e.id(o))
			}
			n++
			if next = a.head.Get("X-Next-Token"); next == "" {
				return all, n
			}
		}
	}
	// As the clients write it: each escaped, then as a query, then as a value of one.
	metadata := func(k, v string) string {
		return "metadata=" + url.QueryEscape(url.Values{url.PathEscape(k): {strings.ReplaceAll(url.QueryEscape(v), "+", "%20")}}.Encode())
	}
	reverse := []string{made[4], made[3], made[2], made[1], made[0]}
	for query, want := range map[string][]string{
		"":                                   reverse,
		"limit=2":                            reverse,
		"limit=5":                            reverse,
		"limit=2&order=asc":                  made,
		"state=paused":                       made[:1],
		"state=running":                      reverse[:4],
		"state=running,paused":               reverse,
		"state=running&state=paused&limit=1": reverse,
		metadata("n", "1"):                   {made[3], made[1]},
		metadata("odd", "ä &=%+"):            reverse,
		metadata("odd", "other"):             nil,
		"metadata=n%3D1":                     {made[3], made[1]},
		"template=base":                      reverse,
		"template=other":                     nil,
		"startedAfter=" + url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339Nano)):  nil,
		"startedAfter=" + url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339Nano)): reverse,
	} {
		if got, _ := pages(query); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %d of them, want %d: %v", query, len(got), len(want), got)
		}
	}
	if _, n := pages("limit=2"); n != 3 {
		t.Errorf("%d pages", n)
	}
	if got := e.do("GET", "/v2/sandboxes?limit=1", "").head.Get("X-Total-Running"); got != "4" {
		t.Errorf("%s run", got)
	}
	if list := e.do("GET", "/sandboxes", "").list(t); len(list) != 4 {
		t.Errorf("the old list has %d", len(list))
	}
	for _, query := range []string{"limit=0", "limit=x", "state=gone", "order=up", "startedAfter=now", "nextToken=x", "nextToken=" + "MQ", "metadata=%25zz"} {
		e.do("GET", "/v2/sandboxes?"+query, "").fails(t, query, 400, "")
	}
	if a := e.do("GET", "/v2/sandboxes?limit=5000", ""); a.status != 200 {
		t.Errorf("a large limit: %d %s", a.status, a.body)
	}
}

func TestProjectsDoNotSeeEachOther(t *testing.T) {
	e := start(t, options{})
	id := e.id(e.create(base))
	snap := e.do("POST", "/sandboxes/"+id+"/snapshots", `{}`).object(t)["snapshotID"].(string)
	_, other, err := e.control.CreateKeyAs(t.Context(), "other", "", control.KeyE2B)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{
		"GET /sandboxes/{}", "DELETE /sandboxes/{}", "POST /sandboxes/{}/pause", "POST /sandboxes/{}/timeout", "POST /sandboxes/{}/connect",
		"POST /sandboxes/{}/fork", "POST /sandboxes/{}/snapshots", "PUT /sandboxes/{}/network", "GET /sandboxes/{}/metrics", "GET /sandboxes/{}/logs",
		"GET /v2/sandboxes/{}/logs", "POST /sandboxes/{}/refreshes", "POST /sandboxes/{}/resume",
	} {
		method, path, _ := strings.Cut(c, " ")
		body := ""
		if method != "GET" {
			body = `{"timeout":60}`
		}
		e.do(method, strings.ReplaceAll(path, "{}", id), body, "X-Api-Key", other).fails(t, c, 404, "not found")
	}
	e.do("DELETE", "/templates/"+snap, "", "X-Api-Key", other).fails(t, "a snapshot", 404, "")
	e.do("POST", "/v2/sandboxes", `{"templateID":"`+snap+`"}`, "X-Api-Key", other).fails(t, "a start from a snapshot", 404, "not found")
	if list := e.do("GET", "/v2/sandboxes", "", "X-Api-Key", other).list(t); len(list) != 0 {
		t.Errorf("another's list: %v", list)
	}
	if list := e.do("GET", "/snapshots", "", "X-Api-Key", other).list(t); len(list) != 0 {
		t.Errorf("another's snapshots: %v", list)
	}
}

//go:build integration

package app_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// resultsOf runs Python code and returns the data of its results.
func (b *box) resultsOf(code string) (results []map[string]string, stderr string) {
	b.t.Helper()
	status, body := b.s.do(b.t, "POST", b.path("/exec"), obj{"code": code})
	if status != 200 {
		b.t.Fatalf("exec: %d %s", status, body)
	}
	b.must(collect(b.t, body))
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		var e event
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &e); err != nil {
			b.t.Fatal(err)
		}
		if e.Type != "result" {
			continue
		}
		var data map[string]string
		if err := json.Unmarshal(e.Data, &data); err != nil {
			b.t.Fatal(err)
		}
		results = append(results, data)
	}
	return results, collect(b.t, body).stderr
}

// TestRealInterpreterTemplate builds code-interpreter-v1 as the server does in the
// background, and looks at what its sandboxes are for.
func TestRealInterpreterTemplate(t *testing.T) {
	s := realServer(t)
	// It loads some 300 MB of packages, as fast as they come.
	status, body := s.doWithin(t, 15*time.Minute, "POST", "/v1/templates", obj{"name": "python-datasci"})
	if status != 200 || !bytes.Contains(body, []byte(`"type":"done"`)) {
		t.Fatalf("build: %d %s", status, body)
	}
	b := s.create(t, obj{"template": "python-datasci"})
	var made struct{ Template string }
	s.call(t, "GET", b.path(""), nil, &made)
	if made.Template != "code-interpreter-v1" {
		t.Errorf("template %q", made.Template)
	}
	begin := time.Now()
	results, stderr := b.resultsOf(`
import matplotlib.pyplot as plt, pandas as pd
plt.bar(["东京", "서울", "北京"], [1, 2, 3]); plt.title("人口 かな 한글"); plt.ylabel("百万 (人)"); plt.show()
pd.DataFrame({"名": ["a", "b"], "n": [1, 2]})`)
	t.Logf("the first chart and DataFrame took %v", time.Since(begin).Round(time.Millisecond))
	if strings.Contains(stderr, "missing from") || strings.Contains(stderr, "findfont") || stderr != "" {
		t.Errorf("stderr: %s", stderr)
	}
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	var chart struct {
		Type, Title string
		YUnit       string `json:"y_unit"`
		Elements    []struct {
			Label string
			Value float64
		}
	}
	if err := json.Unmarshal([]byte(results[0]["application/vnd.ramet.chart+json"]), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Type != "bar" || chart.Title != "人口 かな 한글" || chart.YUnit != "人" || len(chart.Elements) != 3 || chart.Elements[2].Label != "北京" || chart.Elements[2].Value != 3 {
		t.Errorf("chart %+v", chart)
	}
	if png, err := base64.StdEncoding.DecodeString(results[0]["image/png"]); err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Errorf("picture: %v", err)
	}
	if got := results[1]["application/vnd.ramet.data+json"]; got != `{"名":["a","b"],"n":[1,2]}` || !strings.Contains(results[1]["text/html"], "<table") {
		t.Errorf("DataFrame: %v", results[1])
	}
	if got := b.mustBash("sudo -u user python3 -c 'import matplotlib.font_manager as f; print(f.findfont(\"WenQuanYi Micro Hei\"))'"); !strings.Contains(got, "wqy-microhei") {
		t.Errorf("the font of another user: %q", got)
	}
	var list struct {
		Templates []struct {
			Name    string
			Aliases []string
		}
	}
	s.call(t, "GET", "/v1/templates", nil, &list)
	if len(list.Templates) < 2 {
		t.Errorf("templates %+v", list)
	}
}

func TestRealContextsLiveOnInForks(t *testing.T) {
	s := realServer(t)
	b := s.create(t, nil)
	context := func(language string) string {
		var c struct{ ID string }
		s.call(t, "POST", b.path("/contexts"), obj{"language": language}, &c)
		return c.ID
	}
	py, js, sh := context("python"), context("javascript"), context("bash")
	in := func(b *box, id, code string) string {
		t.Helper()
		status, body := s.do(t, "POST", b.path("/exec"), obj{"context": id, "code": code})
		if status != 200 {
			t.Fatalf("exec in %s: %d %s", id, status, body)
		}
		return b.must(collect(t, body))
	}
	in(b, py, "x = 41; import random; random.seed(1)")
	in(b, js, "const x = await Promise.resolve(41); Math.random()")
	in(b, sh, "x=41; cd /tmp; f() { echo $((x + 1)); }; RANDOM=1")
	b.must(b.run("javascript", "const first = process.pid", nil))
	var forked struct{ Children []string }
	s.call(t, "POST", b.path("/fork"), obj{"n": 1}, &forked)
	child := &box{t: t, s: s, ID: forked.Children[0]}
	t.Cleanup(func() { s.do(t, "DELETE", child.path(""), nil) })
	var drawn [2]string
	for n, b := range []*box{b, child} {
		if got := in(b, py, "print(x + 1)") + in(b, js, "console.log(x + 1)") + in(b, sh, "f; pwd"); got != "42\n42\n42\n/tmp\n" {
			t.Errorf("state in machine %d: %q", n, got)
		}
		if got := b.must(b.run("javascript", "console.log(first === process.pid)", nil)); got != "true\n" {
			t.Errorf("the JavaScript interpreter of machine %d is another one: %q", n, got)
		}
		drawn[n] = in(b, py, "print(random.random())") + in(b, js, "console.log(Math.random())") + in(b, sh, "echo $RANDOM$RANDOM$RANDOM")
	}
	a, c := strings.Split(drawn[0], "\n"), strings.Split(drawn[1], "\n")
	for n := range 3 {
		if a[n] == c[n] {
			t.Errorf("siblings draw the same: %q and %q", drawn[0], drawn[1])
		}
	}
}

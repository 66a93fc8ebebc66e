package exec

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const (
	frameMIME = "application/vnd.ramet.data+json"
	chartMIME = "application/vnd.ramet.chart+json"
)

// chartOf runs code that makes one figure and returns its chart.
func chartOf(t *testing.T, f *fixture, code string) map[string]any {
	t.Helper()
	tr := f.python("import matplotlib.pyplot as plt\n" + code)
	var charts []map[string]any
	for _, r := range tr.results {
		text, ok := r.GetData()[chartMIME]
		if !ok {
			continue
		}
		png, err := base64.StdEncoding.DecodeString(r.GetData()["image/png"])
		if err != nil || !strings.HasPrefix(string(png), "\x89PNG") {
			t.Errorf("%s: no picture beside the chart", code)
		}
		var chart map[string]any
		if err := json.Unmarshal([]byte(text), &chart); err != nil {
			t.Fatalf("%s: %v: %s", code, err, text)
		}
		charts = append(charts, chart)
	}
	if len(charts) != 1 {
		t.Fatalf("%s\n%d charts in %d results, %v %s", code, len(charts), len(tr.results), tr.exit, tr.stderr)
	}
	return charts[0]
}

// holds checks that a chart has what is expected, which is JSON; it may have more.
func holds(t *testing.T, chart map[string]any, want string) {
	t.Helper()
	var expected map[string]any
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	for k, v := range expected {
		if got, ok := chart[k]; !ok || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %v, want %v", k, got, v)
		}
	}
}

func TestCharts(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct{ name, code, want string }{
			{"line", `plt.plot([1, 2], [3.5, float("nan")], label="a"); plt.plot([1, 2], [5, 6]); plt.axhline(4)
plt.title("T"); plt.xlabel("Time (s)"); plt.ylabel("Speed [m/s]"); plt.yscale("log"); None`,
				`{"type":"line","title":"T","x_label":"Time (s)","x_unit":"s","y_label":"Speed [m/s]","y_unit":"m/s","x_scale":"linear","y_scale":"log",
				"elements":[{"label":"a","points":[[1,3.5],[2,null]]},{"label":"Line 1","points":[[1,5],[2,6]]}]}`},
			{"dates", `import datetime; plt.plot([datetime.date(2024, 1, 2), datetime.date(2024, 1, 3)], [1, 2]); plt.show()`,
				`{"type":"line","title":null,"x_label":null,"x_unit":null,"x_scale":"datetime","elements":[{"label":"Line 0","points":[["2024-01-02",1],["2024-01-03",2]]}]}`},
			{"categories", `plt.plot(["a", "b"], [1, 2]); plt.show()`,
				`{"type":"line","x_scale":"categorical","x_ticks":[0,1],"x_tick_labels":["a","b"],"elements":[{"label":"Line 0","points":[["a",1],["b",2]]}]}`},
			{"ticks", `plt.plot([0, 1], [0, 2]); plt.xticks([0, 1], ["zero", "one"]); plt.yticks([0, 2]); plt.show()`,
				`{"x_scale":"categorical","x_tick_labels":["zero","one"],"y_ticks":[0,2],"y_tick_labels":["0","2"],"y_scale":"linear"}`},
			{"scatter", `s = plt.scatter([1, 2], [3, 4], c=[1, 2], label="s"); plt.colorbar(s); plt.show()`,
				`{"type":"scatter","elements":[{"label":"s","points":[[1,3],[2,4]]}]}`},
			{"bar", `plt.bar(["x", "y"], [1, 2.5], label="g"); plt.xlabel("what"); plt.ylabel("much (kg)"); plt.show()`,
				`{"type":"bar","x_label":"what","y_unit":"kg","elements":[{"label":"x","group":"g","value":1},{"label":"y","group":"g","value":2.5}]}`},
			{"barh", `plt.barh(["x", "y"], [1, 2]); plt.ylabel("what"); plt.xlabel("much"); plt.show()`,
				`{"type":"bar","x_label":"what","y_label":"much","elements":[{"label":"x","group":"Group 0","value":1},{"label":"y","group":"Group 0","value":2}]}`},
			{"groups", `plt.bar([-0.2, 0.8], [1, 2], 0.4, label="m"); plt.bar([0.2, 1.2], [3, 4], 0.4, label="w"); plt.xticks([0, 1], ["p", "q"]); plt.show()`,
				`{"type":"bar","elements":[{"label":"p","group":"m","value":1},{"label":"q","group":"m","value":2},{"label":"p","group":"w","value":3},{"label":"q","group":"w","value":4}]}`},
			{"hist", `plt.hist([1, 1, 2], bins=[0.5, 1.5, 2.5]); plt.show()`,
				`{"type":"bar","elements":[{"label":"1.00","group":"Group 0","value":2},{"label":"2.00","group":"Group 0","value":1}]}`},
			{"pie", `plt.pie([1, 3], labels=["a", "b"]); plt.title("P"); plt.show()`,
				`{"type":"pie","title":"P","elements":[{"label":"a","angle":90,"radius":1},{"label":"b","angle":270,"radius":1}]}`},
			{"box", `plt.boxplot([[1, 2, 3, 4, 100], [5, 6, 7]], labels=["p", "q"]); plt.ylabel("v"); plt.show()`,
				`{"type":"box_and_whisker","y_label":"v","elements":[{"label":"p","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[100]},
				{"label":"q","min":5,"first_quartile":5.5,"median":6,"third_quartile":6.5,"max":7,"outliers":[]}]}`},
			{"box across", `plt.boxplot([[1, 2, 3]], vert=False, patch_artist=True); plt.yticks([1], ["one"]); plt.xlabel("v"); plt.show()`,
				`{"type":"box_and_whisker","y_label":"v","elements":[{"label":"one","min":1,"first_quartile":1.5,"median":2,"third_quartile":2.5,"max":3,"outliers":[]}]}`},
			{"unknown", `plt.imshow([[1, 2], [3, 4]]); plt.show()`, `{"type":"unknown","title":null,"elements":[]}`},
		} {
			t.Run(c.name, func(t *testing.T) {
				f := &fixture{t, f.svc, f.client}
				holds(t, chartOf(t, f, c.code), c.want)
			})
		}
		super := chartOf(t, f, `fig, (a, b) = plt.subplots(1, 2); fig.suptitle("S"); a.plot([1, 2], [1, 2]); a.set_title("A"); b.bar(["x"], [1]); plt.show()`)
		holds(t, super, `{"type":"superchart","title":"S"}`)
		parts := super["elements"].([]any)
		if len(parts) != 2 {
			t.Fatalf("%d parts", len(parts))
		}
		holds(t, parts[0].(map[string]any), `{"type":"line","title":"A"}`)
		holds(t, parts[1].(map[string]any), `{"type":"bar"}`)
		holds(t, chartOf(t, f, `fig = plt.figure(); plt.plot([1], [1]); fig`), `{"type":"line"}`)
	})
}

func TestFiguresWithoutDataHaveNoChart(t *testing.T) {
	f := newFixture(t)
	tr := f.python("import matplotlib.pyplot as plt\nplt.figure().text(0, 0, 'only text')\nplt.show()")
	if len(tr.results) != 1 || tr.results[0].GetData()["image/png"] == "" || tr.results[0].GetData()[chartMIME] != "" {
		t.Errorf("%v", tr.results)
	}
}

func TestDataFramesTellTheirColumns(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tr := f.python(`import pandas as pd, numpy as np, decimal
pd.DataFrame({"n": [1, 2], "f": [0.5, np.nan], "s": ["é", None], "t": pd.to_datetime(["2024-01-02", None]), "b": [True, False],
  "c": pd.Categorical(["u", "v"]), "d": pd.to_timedelta([1, 2], "s"), 7: pd.array([1, None], dtype="Int64"), "e": [decimal.Decimal("1.5"), {"k": np.int8(1)}]})`)
		if len(tr.results) != 1 || !tr.results[0].GetMain() {
			t.Fatalf("%v %v %s", tr.results, tr.exit, tr.stderr)
		}
		data := tr.results[0].GetData()
		if !strings.Contains(data["text/html"], "<table") || !strings.Contains(data["text/plain"], "0.5") {
			t.Errorf("%v", data)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(data[frameMIME]), &got); err != nil {
			t.Fatal(err)
		}
		delete(got, "d")
		holds(t, got, `{"n":[1,2],"f":[0.5,null],"s":["é",null],"t":["2024-01-02T00:00:00",null],"b":[true,false],"c":["u","v"],"7":[1,null],"e":[1.5,{"k":1}]}`)
		tr = f.python(`df = pd.DataFrame([[1, 2]], columns=["a", "a"]); display(df); pd.DataFrame({("x", 1): [1]})`)
		if len(tr.results) != 2 || tr.results[0].GetData()[frameMIME] != `{"a":[1],"a.1":[2]}` || tr.results[1].GetData()[frameMIME] != `{"('x', 1)":[1]}` {
			t.Errorf("%v %s", tr.results, tr.stderr)
		}
		tr = f.python(`pd.DataFrame(np.zeros((2000, 1000)))`)
		if data := tr.results[0].GetData(); data[frameMIME] != "" || data["text/html"] == "" {
			t.Errorf("a huge frame: %d bytes", len(data[frameMIME]))
		}
	})
}

func TestResultsAreNotLoadedWithoutNeed(t *testing.T) {
	f := newFixture(t)
	code := "import sys; print([m for m in ('matplotlib', 'pandas', 'numpy') if m in sys.modules])"
	if out := f.pythonOK(code); out != "[]\n" {
		t.Errorf("imported at the start: %s", out)
	}
}

func TestSeveralDisplaysAndOneMainResult(t *testing.T) {
	bothInterpreters(t, func(t *testing.T, f *fixture) {
		tr := f.python(`
class Rich:
    def _repr_html_(self): return "<b>"
    def _repr_markdown_(self): return "**"
    def _repr_svg_(self): return "<svg/>"
    def _repr_jpeg_(self): return b"jpeg"
    def _repr_pdf_(self): return b"pdf"
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": [1]}
    def _repr_javascript_(self): return "alert()"
display(1); display(Rich())
Rich()`)
		if len(tr.results) != 3 || tr.results[0].GetMain() || tr.results[1].GetMain() || !tr.results[2].GetMain() {
			t.Fatalf("%v %s", tr.results, tr.stderr)
		}
		want := map[string]string{
			"text/html": "<b>", "text/markdown": "**", "image/svg+xml": "<svg/>", "image/jpeg": base64.StdEncoding.EncodeToString([]byte("jpeg")),
			"application/pdf": base64.StdEncoding.EncodeToString([]byte("pdf")), "text/latex": "$x$", "application/json": `{"a": [1]}`, "application/javascript": "alert()",
		}
		for mime, text := range want {
			if got := tr.results[2].GetData()[mime]; got != text {
				t.Errorf("%s: %q, want %q", mime, got, text)
			}
		}
	})
}

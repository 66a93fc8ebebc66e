package exec

import (
	"encoding/base64"
	"strings"
	"testing"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// node returns a fixture and what runs code in its JavaScript.
func node(t *testing.T) (*fixture, func(code string) *transcript) {
	f := newFixture(t)
	return f, func(code string) *transcript {
		t.Helper()
		return f.run(&agentv1.RunRequest{Language: "javascript", Code: code})
	}
}

// mainText is the text of the main result.
func mainText(tr *transcript) string {
	for _, r := range tr.results {
		if r.GetMain() {
			return r.GetData()["text/plain"]
		}
	}
	return ""
}

func TestNodeStateAndResults(t *testing.T) {
	_, run := node(t)
	for _, c := range []struct{ code, stdout, result string }{
		{"const a = 1; let b = 2, c; var d = 3; class E { f() { return 5 } }\nfunction g() { return 6 }", "", ""},
		{"[a, b, c, d, new E().f(), g()]", "", "[ 1, 2, undefined, 3, 5, 6 ]"},
		{"const a = 'again'; let b; class E {}; a", "", "'again'"},
		{"b", "", ""},
		{"const { x, y: [z, ...w], ...rest } = { x: 1, y: [2, 3, 4], u: 5 }; x + z", "", "3"},
		{"w.length + rest.u", "", "7"},
		{"console.log('out'); console.error('err'); 'é漢'", "out\n", "'é漢'"},
		{"const p = await Promise.resolve(41)\np + 1", "", "42"},
		{"const { q } = await Promise.resolve({ q: 1 }), r = 2\nlet s\nfunction late() { return await_ }\nvar await_ = 7", "", ""},
		{"`${q} ${r} ${typeof s} ${late()}`", "", "'1 2 undefined 7'"},
		{"class K { async m() { return await 9 } }\nconst k = new K()\nawait k.m()", "", "9"},
		{"new K() instanceof K", "", "true"},
		{"for (const i of [1, 2]) { await null; console.log(i) }", "1\n2\n", ""},
		{"for await (const i of (async function* () { yield 8 })()) console.log(i)", "8\n", ""},
		{"async function main() { return 'done' }\nmain()", "", "'done'"},
		{"{ k: 1 }.k", "", "1"},
		{"({ deep: { er: [1] } })", "", "{ deep: { er: [ 1 ] } }"},
		{"const re = /[/'\"]const x/g, n = 4 / 2 / 1; re.source + n", "", "`[/'\"]const x2`"},
		{"const t = `a${`b${1 + 1}`}c`\n// const t = 0\nt", "", "'ab2c'"},
		{"import os, { EOL as eol } from 'os'\nimport * as p from 'node:path'\ntypeof os.cpus + eol.length + p.sep", "", "'function1/'"},
		{"require('path').basename('/a/b') + fsp", "", ""},
		{"(await import('node:fs')).existsSync('/')", "", "true"},
		{"if (true) { 'in a block' }", "", "'in a block'"},
		{"undefined", "", ""},
		{"null", "", "null"},
		{"await 1;", "", "1"},
		{"let i = 0\nwhile (i < 3) i++\ni", "", "3"},
		{"const f2 = async () => { await 1; return 5 }\nconst v = await f2()\nv", "", "5"},
		{"let count = 1\n;[1, 2].forEach((n) => { count += n })\ncount", "", "4"},
	} {
		tr := run(c.code)
		result := mainText(tr)
		if strings.Contains(c.code, "fsp") {
			if tr.exit.GetError().GetName() != "ReferenceError" {
				t.Errorf("%s: %v", c.code, tr.exit)
			}
			continue
		}
		if tr.exit.GetCode() != 0 || tr.stdout != c.stdout || result != c.result {
			t.Errorf("%s\nresult %q, stdout %q, %v %s", c.code, result, tr.stdout, tr.exit, tr.stderr)
		}
	}
}

func TestNodeRichResults(t *testing.T) {
	_, run := node(t)
	png := []byte("\x89PNG\r\n\x1a\nrest")
	tr := run(`await display({ a: 1 }, 2)
const shown = { [Symbol.for("Jupyter.display")]: () => ({ "text/html": "<b>x</b>", "application/json": { n: 1 } }) }
await display(shown)
Buffer.from("` + base64.StdEncoding.EncodeToString(png) + `", "base64")`)
	if tr.exit.GetCode() != 0 || len(tr.results) != 4 {
		t.Fatalf("%v %v %s", tr.exit, tr.results, tr.stderr)
	}
	if d := tr.results[0].GetData(); d["application/json"] != `{"a":1}` || d["text/plain"] != "{ a: 1 }" || tr.results[0].GetMain() {
		t.Errorf("object: %v", tr.results[0])
	}
	if d := tr.results[2].GetData(); d["text/html"] != "<b>x</b>" || d["application/json"] != `{"n":1}` {
		t.Errorf("display symbol: %v", d)
	}
	if d := tr.results[3].GetData(); d["image/png"] != base64.StdEncoding.EncodeToString(png) || !tr.results[3].GetMain() {
		t.Errorf("png: %v", d)
	}
	if tr := run("'x'.repeat(20 << 20)"); tr.exit.GetCode() != 0 {
		t.Errorf("a huge result: %v", tr.exit)
	}
	if tr := run("const o = {}; o.o = o; o"); tr.results[0].GetData()["application/json"] != "" {
		t.Errorf("a cycle: %v", tr.results)
	}
}

func TestNodeErrors(t *testing.T) {
	_, run := node(t)
	for _, c := range []struct{ code, name, value, traceback string }{
		{"\nfunction f() { null.x }\nf()", "TypeError", "Cannot read properties of null", "<cell "},
		{"let = =", "SyntaxError", "Unexpected token", "SyntaxError"},
		{"await let = =", "SyntaxError", "", "SyntaxError"},
		{"throw 'a string'", "Error", "a string", ""},
		{"class Mine extends Error { constructor() { super('m'); this.name = 'Mine' } }\nthrow new Mine()", "Mine", "m", ""},
		{"await Promise.reject(new RangeError('r'))", "RangeError", "r", ""},
		{"(async () => { throw new Error('later') })()", "Error", "later", ""},
		{"require('no-such-package')", "Error", "Cannot find module", ""},
		{"throw { get message() { throw 1 } }", "Error", "", ""},
	} {
		tr := run(c.code)
		e := tr.exit.GetError()
		if tr.exit.GetCode() != 1 || e.GetName() != c.name || !strings.Contains(e.GetValue(), c.value) || !strings.Contains(e.GetTraceback(), c.traceback) {
			t.Errorf("%s: %v", c.code, tr.exit)
		}
		if strings.Contains(e.GetTraceback(), "ramet:") || strings.Contains(e.GetTraceback(), "node:internal") {
			t.Errorf("%s: traceback %s", c.code, e.GetTraceback())
		}
	}
	seen := run("setTimeout(() => { throw new Error('stray') }, 0); Promise.reject(new Error('lost'))").stderr
	for !strings.Contains(seen, "stray") {
		tr := run("await new Promise((r) => setTimeout(r, 20))")
		if tr.exit.GetCode() != 0 {
			t.Fatalf("after stray errors: %v", tr.exit)
		}
		seen += tr.stderr
	}
}

func TestNodeInterruptsWhatWaits(t *testing.T) {
	f, run := node(t)
	run("const x = 1")
	tr := f.run(&agentv1.RunRequest{Language: "js", Code: "await new Promise((r) => setTimeout(r, 1e8))", TimeoutMillis: 200})
	if tr.exit.GetReason() != agentv1.Reason_TIMEOUT || tr.exit.GetCode() != 130 {
		t.Errorf("exit %v", tr.exit)
	}
	if tr := run("x"); mainText(tr) != "1" {
		t.Errorf("state: %v", tr.results)
	}
}

func TestNodeThatCannotBeInterruptedIsKilled(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.ReplGrace = 200_000_000 })
	tr := f.run(&agentv1.RunRequest{Language: "javascript", Code: "await null; while (true) {}", TimeoutMillis: 200})
	if tr.exit.GetReason() != agentv1.Reason_TIMEOUT || !strings.Contains(tr.exit.GetMessage(), "killed") {
		t.Errorf("exit %v", tr.exit)
	}
	if tr := f.run(&agentv1.RunRequest{Language: "javascript", Code: "1"}); tr.exit.GetCode() != 0 || !strings.Contains(tr.stderr, "[ramet]") {
		t.Errorf("%v %q", tr.exit, tr.stderr)
	}
}

func TestNodeContextIsMadeByItsFirstRun(t *testing.T) {
	f, run := node(t)
	ids := func() (ids string) {
		list, err := f.client.ListContexts(f.ctx(), &agentv1.ListContextsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list.GetContexts() {
			ids += c.GetId() + ":" + c.GetLanguage() + " "
		}
		return ids
	}
	if got := ids(); got != "default:python " {
		t.Errorf("at first: %s", got)
	}
	run("const x = 5")
	if got := ids(); got != "default:python javascript:javascript " {
		t.Errorf("then: %s", got)
	}
	if tr := f.in("javascript", "x"); mainText(tr) != "5" {
		t.Errorf("by its name: %v", tr.results)
	}
}

func TestTypeScriptRunsOrSaysWhyNot(t *testing.T) {
	f := newFixture(t)
	tr := f.run(&agentv1.RunRequest{Language: "typescript", Code: "const n: number = 4; n"})
	if tr.exit.GetReason() == agentv1.Reason_START_FAILED {
		if !strings.Contains(tr.exit.GetMessage(), "cannot strip its types") {
			t.Errorf("exit %v", tr.exit)
		}
		return
	}
	if tr.exit.GetCode() != 0 || mainText(tr) != "4" {
		t.Errorf("%v %v", tr.exit, tr.results)
	}
}

func TestNodeRandomBytesComeFromTheKernel(t *testing.T) {
	_, run := node(t)
	tr := run(`import { randomUUID } from 'crypto'
const c = require('crypto'), a = new Uint32Array(4)
await new Promise((r, j) => c.randomBytes(8, (e, b) => e ? j(e) : r(b)));
await new Promise((r, j) => c.randomFill(Buffer.alloc(8), 2, 4, (e, b) => e ? j(e) : r(b)));
[c.randomBytes(70000).length, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(randomUUID()), randomUUID() !== c.randomUUID(),
 c.webcrypto.getRandomValues(a) === a && a.some((n) => n > 0), c.randomFillSync(Buffer.alloc(8), 6).subarray(0, 6).every((n) => n === 0),
 c.randomUUID === c.webcrypto.randomUUID, c.randomInt(5) < 5]`)
	if got := mainText(tr); strings.Join(strings.Fields(got), " ") != "[ 70000, true, true, true, true, true, true ]" {
		t.Errorf("%s %v", got, tr.exit)
	}
	if tr := run("require('crypto').randomBytes(-1)"); tr.exit.GetError().GetName() != "RangeError" {
		t.Errorf("a size that cannot be: %v", tr.exit)
	}
}

func TestNodeRandomNumbersAreDroppedAtAReseed(t *testing.T) {
	f, run := node(t)
	run("Math.random()")
	f.renew(Renewal{Reseed: true})
	if tr := run("const r = Math.random(); r >= 0 && r < 1 && r !== Math.random()"); mainText(tr) != "true" {
		t.Errorf("%v", tr.results)
	}
}

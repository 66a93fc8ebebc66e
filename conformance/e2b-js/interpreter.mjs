// The code interpreter through E2B's official JavaScript client.
//
// Prints one JSON object per operation, and exits with 1 when one did not do what it should.
// The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.

import { Sandbox } from '@e2b/code-interpreter'
import { Differs, eventually, has, main, operation, raises, same, Skip } from './_check.mjs'

const out = (e) => e.logs.stdout.join('')
const err = (e) => e.logs.stderr.join('')

/** Runs code that must not fail. */
async function ok(s, code, opts) {
  const e = await s.runCode(code, opts)
  if (e.error) throw new Error(`${e.error.name}: ${e.error.value}\n${e.error.traceback}`.slice(0, 1500))
  return e
}

operation('runCode: result', async (s) => {
  const e = await ok(s, 'x = 20\nx * 2 + 2')
  same([e.text, e.results.length, e.results[0].isMainResult, out(e)], ['42', 1, true, ''])
  same((await ok(s, 'x + 1')).text, '21', 'the state')
  same((await ok(s, "'it is text'")).text, 'it is text', 'a string')
  same((await ok(s, 'y = 1')).results, [], 'nothing')
})

operation('runCode: output', async (s) => {
  const e = await ok(s, "import sys, os\nprint('hé ☃ 😀' * 3000)\nprint('e', file=sys.stderr)\nos.system('echo from a child')")
  same(out(e) === 'hé ☃ 😀'.repeat(3000) + '\nfrom a child\n', true, 'stdout')
  same(err(e), 'e\n')
})

operation('runCode: callbacks', async (s) => {
  const seen = { out: [], err: [], result: [], error: [] }
  const e = await s.runCode("import sys, time\nprint('one', flush=True)\ntime.sleep(0.3)\nprint('two', file=sys.stderr, flush=True)\ndisplay(3)\n1/0", {
    onStdout: (m) => void seen.out.push(m),
    onStderr: (m) => void seen.err.push(m),
    onResult: (r) => void seen.result.push(r),
    onError: (e) => void seen.error.push(e),
  })
  same([seen.out.map((m) => m.line).join(''), seen.err.map((m) => m.line).join('')], ['one\n', 'two\n'])
  same([seen.result.map((r) => r.text), seen.error.length, e.error.name], [['3'], 1, 'ZeroDivisionError'])
})

operation('runCode: errors', async (s) => {
  let e = await s.runCode("def f():\n    raise ValueError('because')\nf()")
  same([e.error.name, e.error.value], ['ValueError', 'because'])
  has(e.error.traceback, 'because')
  e = await s.runCode('this is no python')
  same(e.error.name, 'SyntaxError')
  same((await ok(s, '1+1')).text, '2', 'afterwards')
})

operation('runCode: count', async (s) => {
  const n = (await ok(s, '1')).executionCount
  same((await ok(s, '1')).executionCount, n + 1)
})

operation('runCode: environment, working directory', async (s) => {
  same((await ok(s, "import os\nos.environ['GIVEN'] + os.environ['MINE']", { envs: { MINE: ' a b' } })).text, 'of create a b')
  same((await ok(s, "print(os.environ.get('MINE'), os.getcwd())")).logs.stdout.join(''), 'None /home/user\n')
})

operation('runCode: forms of results', async (s) => {
  const e = await ok(s, `
class All:
    def _repr_html_(self): return '<b>html</b>'
    def _repr_markdown_(self): return '**md**'
    def _repr_svg_(self): return '<svg xmlns="http://www.w3.org/2000/svg"/>'
    def _repr_png_(self): return b'\\x89PNG123'
    def _repr_jpeg_(self): return b'\\xff\\xd8jpeg'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1, 2]}
    def _repr_javascript_(self): return 'alert(1)'
    def __repr__(self): return 'plain'
display(1)
All()
`)
  const r = e.results[1]
  same([r.text, r.html, r.markdown, r.latex, r.javascript, r.json], ['plain', '<b>html</b>', '**md**', '$x$', 'alert(1)', { a: [1, 2] }])
  same(Buffer.from(r.png, 'base64').toString('latin1'), '\x89PNG123')
  same(e.results.map((r) => r.isMainResult), [false, true])
})

operation('runCode: DataFrame', async (s) => {
  const e = await ok(s, "import pandas as pd\npd.DataFrame({'name': ['a', 'b'], 'n': [1, 2]})")
  same(e.results[0].data, { name: ['a', 'b'], n: [1, 2] })
  has(e.results[0].html, '<table')
})

operation('charts: line, bar, pie', async (s) => {
  const chart = async (code) => {
    const e = await ok(s, `import matplotlib.pyplot as plt\nplt.figure()\n${code}\nplt.show()`)
    const r = e.results.find((r) => r.chart)
    if (!r) throw new Error(`no chart in ${JSON.stringify(e.results.map((r) => r.formats()))}`)
    has(Buffer.from(r.png, 'base64').toString('latin1').slice(0, 4), 'PNG')
    return r.chart
  }
  let c = await chart("plt.plot([1, 2, 3], [2, 4, 8], label='growth')\nplt.title('T')\nplt.xlabel('time (s)')")
  same([c.type, c.title, c.x_label, c.x_unit, c.elements.map((e) => [e.label, e.points])], ['line', 'T', 'time (s)', 's', [['growth', [[1, 2], [2, 4], [3, 8]]]]])
  c = await chart("plt.bar(['A', 'B'], [10, 20])")
  same([c.type, c.elements.map((e) => [e.label, Number(e.value)])], ['bar', [['A', 10], ['B', 20]]])
  c = await chart("plt.pie([1, 3], labels=['one', 'three'])")
  same([c.type, c.elements.map((e) => [e.label, Math.round(e.angle)])], ['pie', [['one', 90], ['three', 270]]])
})

operation('contexts: create, list, restart, remove', async (s) => {
  const a = await s.createCodeContext()
  const b = await s.createCodeContext({ cwd: '/tmp', language: 'python' })
  same([a.language, a.cwd, b.cwd], ['python', '/home/user', '/tmp'])
  await ok(s, "v = 'of a'", { context: a })
  same((await ok(s, 'v', { context: a })).text, 'of a')
  same((await s.runCode('v', { context: b })).error.name, 'NameError')
  same((await ok(s, 'import os; os.getcwd()', { context: b })).text, '/tmp')
  if (!s.listCodeContexts) throw new Skip()
  const listed = await s.listCodeContexts()
  for (const language of ['python', 'javascript']) has(listed.map((c) => c.language).join(), language)
  same(listed[0].cwd, '/home/user')
  await s.restartCodeContext(a)
  same((await s.runCode('v', { context: a })).error.name, 'NameError')
  await s.removeCodeContext(a)
  await raises(() => s.runCode('1', { context: a }), Error)
  same((await s.listCodeContexts()).some((c) => c.id === a.id), false)
})

operation('languages: javascript', async (s) => {
  same((await ok(s, 'const a = 40; let b = 1; a + 2', { language: 'javascript' })).text, '42')
  const e = await ok(s, "console.log('log'); console.error('err'); a + b", { language: 'js' })
  same([e.text, out(e), err(e)], ['41', 'log\n', 'err\n'])
  same((await ok(s, "await new Promise(r => setTimeout(() => r('later'), 50))", { language: 'javascript' })).text, 'later')
  const bad = await s.runCode("throw new TypeError('no')", { language: 'javascript' })
  same([bad.error.name, bad.error.value], ['TypeError', 'no'])
})

operation('languages: typescript', async (s) => {
  const e = await s.runCode('const n: number = 41; n + 1', { language: 'typescript' })
  if (e.error && (e.error.value + e.error.traceback).includes('TypeScript')) throw new Differs('types are not stripped by the Node.js of the template: ' + e.error.value.slice(0, 100))
  same([e.error ?? null, e.text], [null, '42'])
})

operation('languages: bash', async (s) => {
  same(out(await ok(s, 'v=5; cd /tmp; echo $v-$PWD', { language: 'bash' })), '5-/tmp\n')
  same(out(await ok(s, 'echo $v-$PWD', { language: 'bash' })), '5-/tmp\n', 'the state')
})

operation('runCode: timeout interrupts', async (s) => {
  await ok(s, "import time\nkept = 'kept'")
  await raises(() => s.runCode('time.sleep(100)', { timeoutMs: 1000 }), Error)
  await eventually('the interpreter is free', async () => (await ok(s, 'kept', { timeoutMs: 30_000 })).text === 'kept')
})

operation('runCode: silence', async (s) => {
  same((await ok(s, "import time\ntime.sleep(12)\n'still here'")).text, 'still here')
})

await main(() => Sandbox.create({ timeoutMs: 300_000, envs: { GIVEN: 'of create' } }))

// Installs the package as users do, from a clean copy of what is in the repository into a folder of its own,
// as a folder and as a packed file, and uses it there: imported, required, with TypeScript, and bundled for a browser.

import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import vm from 'node:vm'

const root = fileURLToPath(new URL('..', import.meta.url))
const tools = join(root, 'tools/node_modules')
const work = mkdtempSync(join(tmpdir(), 'ramet-install-'))
const log = (text) => console.log(`ok - ${text}`)
const run = (cwd, command, args, env = {}) =>
  execFileSync(command, args, { cwd, env: { ...process.env, ...env }, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] })

try {
  // What git has, also what is not committed yet.
  const copy = join(work, 'clone')
  for (const file of run(root, 'git', ['ls-files', '-co', '--exclude-standard', '-z']).split('\0')) {
    if (!file) continue
    mkdirSync(dirname(join(copy, file)), { recursive: true })
    cpSync(join(root, file), join(copy, file))
  }

  const begin = performance.now()
  const app = makeApp('app')
  run(app, 'npm', ['install', '--no-audit', '--no-fund', '--loglevel=error', copy])
  log(`installed from a folder in ${((performance.now() - begin) / 1000).toFixed(1)} s`)
  const packed = run(copy, 'npm', ['pack', '--silent', '--pack-destination', work]).trim().split('\n').pop()
  const app2 = makeApp('app2')
  run(app2, 'npm', ['install', '--no-audit', '--no-fund', '--loglevel=error', join(work, packed)])
  log('installed from a packed file')

  for (const dir of [app, app2]) {
    const both = `
      const assert = require('node:assert'); const cjs = require('ramet')
      import('ramet').then((esm) => {
        assert.deepEqual(Object.keys(cjs).sort(), Object.keys(esm).filter((k) => k !== 'default' && k !== 'module.exports').sort())
        assert.notEqual(cjs.NotFoundError, esm.NotFoundError)
        for (const [a, b] of [[cjs, esm], [esm, cjs]]) {
          const err = new a.UnavailableError('x', { code: 'c', retryAfter: 2 })
          for (const name of ['UnavailableError', 'ServerError', 'RametError']) assert.ok(err instanceof b[name] && err instanceof a[name], name)
          assert.ok(!(err instanceof b.NotFoundError) && !(new Error('x') instanceof b.RametError))
          class Mine extends a.NotFoundError {}
          assert.ok(new Mine('x') instanceof a.NotFoundError && new Mine('x') instanceof b.NotFoundError && new Mine('x') instanceof Mine)
          assert.ok(!(new a.NotFoundError('x') instanceof Mine))
        }
      }).catch((err) => { console.error(err); process.exit(1) })`
    run(dir, process.execPath, ['-e', both])
  }
  log('import and require give the same, and errors of both are instances of both')

  const server = await startServer()
  const env = { RAMET_URL: server.url, RAMET_API_KEY: server.key }
  try {
    const esm = "import { Sandbox } from 'ramet'; const sb = await Sandbox.create(); console.log((await sb.runCode('6 * 7')).text); await sb.close()"
    if (run(app, process.execPath, ['--input-type=module', '-e', esm], env).trim() !== '42') throw new Error('the module does not work')
    const cjs = "const { Sandbox } = require('ramet'); (async () => { const sb = await Sandbox.create(); console.log((await sb.runCode('6 * 7')).text); await sb.close() })()"
    if (run(app2, process.execPath, ['-e', cjs], env).trim() !== '42') throw new Error('the CommonJS module does not work')
    log('both run code')

    typecheck(app2)
    if (!/done 42/.test(run(app2, process.execPath, ['out/program.js'], env))) throw new Error('the sample does not work')
    log('the sample program has strict types in every way of resolving modules, and works')

    if (/error/i.test(run(root, process.execPath, [join(tools, 'publint/src/cli.js'), app2 + '/node_modules/ramet', '--strict']))) throw new Error('publint found something')
    log('publint has nothing to say')
    await browser(app2, server)
    log('the bundle for browsers has nothing of Node, and works')
  } finally {
    await server.close()
  }
} finally {
  rmSync(work, { recursive: true, force: true })
}

function makeApp(name) {
  const dir = join(work, name)
  mkdirSync(dir)
  writeFileSync(join(dir, 'package.json'), JSON.stringify({ name, private: true }))
  return dir
}

function typecheck(app) {
  cpSync(join(root, 'node_modules/@types'), join(app, 'node_modules/@types'), { recursive: true })
  cpSync(join(root, 'node_modules/undici-types'), join(app, 'node_modules/undici-types'), { recursive: true })
  const program = readFileSync(join(root, 'test/sample/program.ts'))
  const strict = { strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noPropertyAccessFromIndexSignature: true, skipLibCheck: false, target: 'ES2022', outDir: 'out' }
  const ways = {
    'ESM in Node': ['program.mts', { module: 'NodeNext', lib: ['ES2022'], types: ['node'] }],
    'CommonJS in Node': ['program.cts', { module: 'NodeNext', lib: ['ES2022'], types: ['node'] }],
    'a bundler for browsers': ['program.ts', { module: 'ESNext', moduleResolution: 'Bundler', lib: ['ES2022', 'DOM', 'DOM.AsyncIterable'], types: ['node'] }],
    'Node as it was': ['program.ts', { module: 'CommonJS', moduleResolution: 'Node10', lib: ['ES2022'], types: ['node'] }],
  }
  for (const [, [name, options]] of Object.entries(ways)) {
    writeFileSync(join(app, name), program)
    writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ compilerOptions: { ...strict, ...options }, files: [name] }))
    run(app, process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', '.'])
    rmSync(join(app, name))
  }
}

/** Runs a bundle with what browsers have, and with nothing else. */
async function browser(app, server) {
  const { build } = await import(join(tools, 'esbuild/lib/main.js'))
  writeFileSync(join(app, 'page.mjs'), `
    import { ConnectionError, Ramet, Sandbox } from 'ramet'
    globalThis.result = (async () => {
      const client = new Ramet({ url: ${JSON.stringify(server.url)}, apiKey: ${JSON.stringify(server.key)} })
      await using sb = await Sandbox.create({ client })
      const seen = []
      for await (const e of sb.runCodeStream('print("a"); 1')) seen.push(e.type)
      await sb.files.write('blob', new Blob(['b1', 'b2']))
      await sb.files.write('stream', new Blob(['s1', 's2']).stream())
      const stop = new AbortController()
      const aborted = await sb.runCode('print(1, flush=True)\\nimport time; time.sleep(600)', { signal: stop.signal, onStdout: () => stop.abort() }).catch((e) => e.name)
      const away = await new Ramet({ url: 'http://127.0.0.1:1' }).info().catch((e) => e instanceof ConnectionError && /CORS/.test(e.message))
      return [seen.filter((t) => t !== 'stdout'), await sb.files.read('blob'), await sb.files.read('stream'), aborted, away, await sb.files.upload('/etc/hostname', 'x').catch((e) => e.code)]
    })()`)
  const { outputFiles, metafile } = await build({
    entryPoints: [join(app, 'page.mjs')], bundle: true, platform: 'browser', format: 'iife', target: 'es2022', write: false, minify: true, metafile: true, logLevel: 'error',
  })
  const text = outputFiles[0].text
  if (/["']node:/.test(text) || Object.keys(metafile.inputs).some((f) => f.includes('platform/node'))) throw new Error('the bundle has parts of Node')
  const names = ['fetch', 'Request', 'Response', 'Headers', 'URL', 'URLSearchParams', 'AbortController', 'AbortSignal', 'TextDecoder', 'TextEncoder', 'ReadableStream', 'Blob', 'DOMException', 'atob', 'setTimeout', 'clearTimeout']
  const page = Object.fromEntries(names.map((n) => [n, globalThis[n]]))
  page.crypto = globalThis.crypto ?? (await import('node:crypto')).webcrypto
  const context = vm.createContext(page)
  // The page's own TypeError is not that of fetch outside of it; in a browser they are one.
  vm.runInContext('globalThis.Uint8Array = outside.Uint8Array; globalThis.ArrayBuffer = outside.ArrayBuffer; globalThis.TypeError = outside.TypeError', Object.assign(context, { outside: { Uint8Array, ArrayBuffer, TypeError } }))
  vm.runInContext(text, context)
  const got = JSON.stringify(await context.result)
  const want = JSON.stringify([['started', 'result', 'exit'], 'b1b2', 's1s2', 'AbortError', true, 'no_local_files'])
  if (got !== want) throw new Error(`in a browser: ${got}, not ${want}`)
  console.log(`ok - ${(text.length / 1024).toFixed(0)} KiB for browsers`)
}

async function startServer() {
  const child = spawn(join(root, '../../scripts/fake-server'), [], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  const [line] = await once(createInterface({ input: child.stdout }), 'line')
  return { ...JSON.parse(line), close: async () => { child.stdin.end(); await ended } }
}

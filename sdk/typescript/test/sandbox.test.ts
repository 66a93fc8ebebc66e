import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import {
  AuthenticationError, CodeError, CommandError, ConflictError, type Execution, type ExecutionEvent, InvalidRequestError, type Isolation, NotFoundError,
  QuotaError, RametError, Sandbox, type SandboxEvent,
} from 'ramet'
import { collect, type Server, soon, startServer } from './harness.js'

let server: Server
let sb: Sandbox
before(async () => {
  server = await startServer()
  sb = await Sandbox.create({ client: server.client, metadata: { role: 'main' } })
})
after(async () => {
  await server.close()
})

const create = (options = {}) => Sandbox.create({ client: server.client, ...options })

test('an isolation can be required', async () => {
  const made = await create({ isolation: 'emulated' })
  assert.equal(made.info.isolation, 'emulated')
  await made.delete()
  await assert.rejects(create({ isolation: 'kvm' }), (err) => err instanceof InvalidRequestError && err.code === 'isolation_unavailable')
  await assert.rejects(create({ isolation: 'vm' as Isolation }), (err) => err instanceof InvalidRequestError && err.code === 'invalid_isolation')
})

test('a sandbox is made with what is asked for, found again, changed and deleted', async () => {
  const made = await create({ metadata: { color: 'blue' }, env: { WHO: 'me' }, memoryMb: 512, vcpus: 1, idleTimeout: 60, egressPolicy: { allow: ['example.com'] } })
  assert.match(made.id, /^sbx_[0-9a-f]{32}$/)
  const { info } = made
  assert.deepEqual([info.memoryMb, info.vcpus, info.idleTimeoutS, info.status, info.origin], [512, 1, 60, 'running', 'create'])
  assert.deepEqual([info.metadata, info.egressPolicy.allow], [{ color: 'blue' }, ['example.com']])
  assert.ok(info.createdAt instanceof Date && Math.abs(info.createdAt.getTime() - Date.now()) < 600_000)
  assert.ok(info.timingsMs && info.timingsMs['total'] !== undefined)
  assert.equal((await made.commands.run('echo $WHO')).stdout, 'me\n')

  const again = await Sandbox.connect(made.id, { client: server.client })
  assert.equal(again.id, made.id)
  const found = await collect(Sandbox.list({ client: server.client, metadata: { color: 'blue' } }))
  assert.deepEqual(found.map((s) => s.id), [made.id])
  assert.equal((await collect(Sandbox.list({ client: server.client, limit: 1 }))).length, 1)

  const updated = await again.update({ idleTimeout: 0, metadata: { color: null, size: 'large' } })
  assert.deepEqual([updated.idleTimeoutS, updated.metadata, again.info.metadata], [0, { size: 'large' }, { size: 'large' }])
  const closed = await again.setEgress(false)
  assert.deepEqual([closed.egress, closed.egressPolicy.allow], [false, []])

  assert.equal(await again.isRunning(), true)
  await again.delete()
  await again.close()
  assert.equal(await again.isRunning(), false)
  await assert.rejects(again.commands.run('true'), (err) => err instanceof RametError && ['sandbox_not_running', 'sandbox_not_found', 'sandbox_deleted'].includes(err.code))
})

test('the list of sandboxes is read page by page', async () => {
  const labels = Array.from({ length: 3 }, (_, i) => String(i))
  await Promise.all(labels.map((n) => create({ metadata: { page: 'yes', n } })))
  let pages = 0
  const client = server.connect({
    fetch: (url, init) => {
      pages++
      return fetch(url.replace('limit=200', 'limit=1'), init)
    },
  })
  const all = await collect(Sandbox.list({ client, metadata: { page: 'yes' } }))
  assert.deepEqual(all.map((s) => s.metadata['n']).sort(), labels)
  assert.ok(pages >= 3)
  for (const { id } of all) await (await Sandbox.connect(id, { client: server.client })).delete()
})

test('await using deletes the sandbox', async () => {
  let id: string
  {
    await using sandbox = await create()
    id = sandbox.id
  }
  const gone = await Sandbox.connect(id, { client: server.client })
  assert.equal(gone.info.status, 'stopped')
})

test('a create that is repeated with its key makes one sandbox', async () => {
  const options = { idempotencyKey: `key-${Date.now()}` }
  const [a, b] = await Promise.all([create(options), create(options)])
  assert.equal(a.id, b.id)
  await assert.rejects(create({ ...options, vcpus: 1 }), (err) => err instanceof ConflictError && err.code === 'idempotency_key_reused')
  await a.delete()
})

test('code: state, results, output, errors', async () => {
  await sb.runCode('import math; r = 3')
  const run = await sb.runCode('print("hi"); math.pi * r**2')
  assert.deepEqual([run.text, run.stdout, run.ok, run.exitCode], ['28.274333882308138', 'hi\n', true, 0])
  assert.equal(run.check(), run)
  assert.match(run.runId, /./)

  const rich = await sb.runCode(`
from IPython.display import display, HTML
display(HTML("<b>x</b>"))
class R:
    def _repr_mimebundle_(self, **kw):
        return {"text/plain": "R", "application/json": {"a": [1]}, "image/png": b"\\x89PNG"}
R()`)
  assert.deepEqual(rich.results.map((r) => [r.html, r.isMainResult]), [['<b>x</b>', false], [undefined, true]])
  assert.deepEqual([rich.text, rich.results[1]?.json], ['R', { a: [1] }])
  assert.deepEqual([...(rich.results[1]?.toBytes('image/png') ?? [])], [0x89, 0x50, 0x4e, 0x47])

  const failed = await sb.runCode('1/0')
  assert.deepEqual([failed.ok, failed.exitCode, failed.error?.name, failed.error?.value], [false, 1, 'ZeroDivisionError', 'division by zero'])
  assert.match(failed.error?.traceback ?? '', /Traceback/)
  assert.throws(() => failed.check(), (err) => err instanceof CodeError && err.execution === failed && /division by zero/.test(err.message))

  const bash = await sb.runCode('echo $X; pwd; exit 4', { language: 'bash', env: { X: 'y' }, cwd: '/tmp' })
  assert.deepEqual([bash.stdout, bash.exitCode], ['y\n/tmp\n', 4])
})

test('callbacks are told in order, and waited for', async () => {
  const seen: string[] = []
  const slow = async (text: string) => {
    await new Promise(setImmediate)
    seen.push(text)
  }
  const run = await sb.runCode('import sys\nprint("a", flush=True)\nprint("b", file=sys.stderr, flush=True)\n1/0', {
    onStdout: (t) => slow(`out ${t}`),
    onStderr: (t) => slow(`err ${t.split('\n')[0]}`),
    onError: (e) => slow(`error ${e.name}`),
  })
  assert.deepEqual(seen.slice(0, 2), ['out a\n', 'err b'])
  assert.equal(seen.at(-1), 'error ZeroDivisionError')
  assert.equal(run.error?.name, 'ZeroDivisionError')
  await assert.rejects(sb.runCode('print(1)\nimport time; time.sleep(60)', { onStdout: () => Promise.reject(new Error('mine')) }), /mine/)
})

test('events come as they happen, and bytes that are not UTF-8 are exact', async () => {
  const types: string[] = []
  let bytes: Uint8Array | undefined
  for await (const event of sb.runCodeStream('import sys\nsys.stdout.buffer.write(b"\\xff\\x00")\nsys.stdout.flush()\n7')) {
    types.push(event.type)
    if (event.type === 'stdout') bytes = event.bytes
    if (event.type === 'result') assert.equal(event.text, '7')
  }
  assert.deepEqual([...(bytes ?? [])], [0xff, 0])
  assert.deepEqual(types.filter((t) => t !== 'stdout'), ['started', 'result', 'exit'])
})

test('leaving a stream interrupts the code, and its state stays', async () => {
  await sb.runCode('kept = 5')
  const seen: ExecutionEvent[] = []
  for await (const event of sb.runCodeStream('print("started", flush=True)\nimport time\nwhile True: time.sleep(0.1)')) {
    seen.push(event)
    if (event.type === 'stdout') break
  }
  assert.deepEqual(seen.map((e) => e.type), ['started', 'stdout'])
  const run = await soon(sb.runCode('kept'), 'the interpreter is free again')
  assert.equal(run.text, '5')
})

test('a call ends with its signal, and what it ran is interrupted', async () => {
  const stop = new AbortController()
  const reason = new Error('enough')
  const run = sb.runCode('print("on", flush=True)\nimport time\ntime.sleep(600)', { signal: stop.signal, onStdout: () => stop.abort(reason) })
  await assert.rejects(soon(run, 'the abort'), reason)
  assert.equal((await soon(sb.runCode('1 + 1'), 'the interpreter is free again')).text, '2')
  await assert.rejects(sb.files.read('x', { signal: AbortSignal.abort(reason) }), reason)
  await assert.rejects(sb.commands.run('sleep 600', { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' })
})

test('code runs into its timeout', async () => {
  const run = await sb.runCode('while True: pass', { timeout: 0.2 })
  assert.deepEqual([run.ok, run.reason], [false, 'timeout'])
  assert.throws(() => run.check(), CodeError)
})

test('commands: text, lists, failures, checks', async () => {
  const run = await sb.commands.run('echo out; echo err >&2; exit 3')
  assert.deepEqual([run.stdout, run.stderr, run.exitCode, run.ok], ['out\n', 'err\n', 3, false])
  assert.throws(() => run.check(), (err) => err instanceof CommandError && err.result === run && /exit code 3: err/.test(err.message))
  await assert.rejects(sb.commands.run('exit 1', { check: true }), CommandError)
  assert.equal((await sb.commands.run(['printf', '%s|', 'a b', '$HOME'])).stdout, 'a b|$HOME|')
  const missing = await sb.commands.run(['no-such-program'])
  assert.deepEqual([missing.exitCode, missing.reason], [127, 'start_failed'])
  const late = await sb.commands.run('sleep 600', { timeout: 0.2 })
  assert.equal(late.reason, 'timeout')
  assert.equal((await sb.commands.run('tr a-z A-Z', { input: 'shout' })).stdout, 'SHOUT')
  assert.equal((await sb.commands.run(['wc', '-c'], { input: new Blob(['x'.repeat(1 << 20)]) })).stdout.trim(), String(1 << 20))
  assert.equal((await sb.commands.run('exit 0', { input: 'x'.repeat(1 << 20) })).ok, true)
  async function* failing() {
    yield 'a'
    throw new Error('the source is empty')
  }
  await assert.rejects(soon(sb.commands.run('cat', { input: failing() }), 'the failure'), /the source is empty/)
  const seen: string[] = []
  await sb.commands.run('echo a; echo b >&2', { onStdout: (t) => void seen.push(t), onStderr: (t) => void seen.push(t) })
  assert.deepEqual(seen.sort(), ['a\n', 'b\n'])
})

test('background commands: wait, iterate, stdin, kill, list, connect', async () => {
  const quick = await sb.commands.run('echo 1; echo 2; exit 5', { background: true })
  const result = await quick.wait()
  assert.deepEqual([result.stdout, result.exitCode, result.id], ['1\n2\n', 5, quick.id])
  await assert.rejects((await sb.commands.connect(quick.id)).wait({ check: true }), CommandError)

  const cat = await sb.commands.run('cat', { background: true, stdin: true })
  assert.ok(cat.pid > 0)
  assert.ok((await sb.commands.list()).some((p) => p.process === cat.id && p.running && p.startedAt instanceof Date))
  const other = await sb.commands.connect(cat.pid)
  assert.equal(other.id, cat.id)
  await Promise.all([cat.sendStdin('one\n'), cat.sendStdin(new TextEncoder().encode('two\n')), sb.commands.sendStdin(other.id, '')])
  await cat.closeStdin()
  let text = ''
  for await (const event of cat) if (event.type === 'stdout') text += event.text
  assert.equal(text, 'one\ntwo\n')
  const again = await cat.wait() // its end is told again; what was read is not
  assert.deepEqual([again.exitCode, again.stdout], [0, ''])
  assert.equal((await other.wait()).stdout, 'one\ntwo\n')

  const sleeper = await sb.commands.run(['sleep', '600'], { background: true })
  const waiting = sleeper.wait()
  await sleeper.kill('SIGTERM')
  const ended = await soon(waiting, 'the end of the killed')
  assert.deepEqual([ended.exitCode, ended.signal, ended.reason], [143, 15, 'signaled'])
  await assert.rejects(sb.commands.run(['no-such-program'], { background: true }), (err) => err instanceof RametError && err.code === 'start_failed')
  await assert.rejects(sb.commands.connect('run_none'), (err) => err instanceof NotFoundError && /commands.list/.test(err.message))
  assert.deepEqual([await sb.commands.kill('run_none'), await sb.commands.kill(99_999_999), await sleeper.kill()], [false, false, false])
  await assert.rejects(sb.commands.sendStdin(99_999_999, 'x'), NotFoundError)
})

test('files: every call', async () => {
  const { files } = sb
  const info = await files.write('dir/a.txt', 'grüße', { mode: 0o640 })
  assert.deepEqual([info.path.endsWith('/root/dir/a.txt'), info.size, info.mode, info.type], [true, 7, '0640', 'file'])
  assert.equal(await files.read('dir/a.txt'), 'grüße')
  assert.deepEqual([...(await files.read('dir/a.txt', { format: 'bytes' }))].length, 7)
  await assert.rejects(files.write('none/a', 'x', { parents: false }), NotFoundError)

  const big = new Uint8Array(3 << 20).map((_, i) => i)
  async function* parts() {
    for (let at = 0; at < big.length; at += 100_000) yield big.subarray(at, at + 100_000)
  }
  for (const data of [big, big.buffer, new Blob([big]), parts(), new Blob([big]).stream()]) {
    assert.equal((await files.write('big', data as never)).size, big.length)
    const chunks: Uint8Array[] = []
    const reader = (await files.read('big', { format: 'stream' })).getReader()
    for (let c = await reader.read(); !c.done; c = await reader.read()) chunks.push(c.value)
    assert.equal(Buffer.compare(Buffer.concat(chunks), big), 0)
  }
  const stream = await files.read('big', { format: 'stream' })
  await stream.cancel()

  const many = await files.writeMany([...Array.from({ length: 20 }, (_, i) => ({ path: `many/${i}`, data: String(i) })), ['many/pair', 'p'] as const])
  assert.deepEqual([many.length, many[7]?.size, many[20]?.size], [21, 1, 1])
  await assert.rejects(files.writeMany([['dir/a.txt/no', 'x']]), RametError)

  await files.mkdir('deep/er')
  const names = (await files.list('.', { depth: 2 })).map((f) => f.path.replace(/^.*\/root\//, ''))
  assert.ok(names.includes('deep/er') && names.includes('dir/a.txt'))
  assert.equal((await files.stat('deep')).type, 'directory')
  await files.rename('dir/a.txt', 'deep/b.txt')
  assert.deepEqual([await files.exists('dir/a.txt'), await files.exists('deep/b.txt')], [false, true])
  await files.write('dir/c.txt', '')
  await assert.rejects(files.rename('deep/b.txt', 'dir/c.txt'), RametError)
  await files.rename('deep/b.txt', 'dir/c.txt', { overwrite: true })
  assert.equal((await files.setAttributes('dir/c.txt', { mode: '0600' })).mode, '0600')
  await assert.rejects(files.remove('dir'), RametError)
  await files.remove('dir', { recursive: true })
  await assert.rejects(files.read('dir/c.txt'), (err) => err instanceof NotFoundError && err.code === 'file_not_found' && /files.list/.test(err.message))

  const tar = await files.readArchive('many')
  const unpacked = await files.writeArchive('copy', tar)
  assert.equal(unpacked.files >= 21, true)
})

test('files go to and from this machine', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'ramet-'))
  try {
    const local = join(dir, 'in')
    const content = Buffer.alloc(5 << 20, 'x')
    await writeFile(local, content)
    assert.equal((await sb.files.upload(local, 'up')).size, content.length)
    assert.equal(await sb.files.download('up', join(dir, 'out')), content.length)
    assert.ok(content.equals(await readFile(join(dir, 'out'))))
    await assert.rejects(sb.files.upload(join(dir, 'none'), 'x'), { code: 'ENOENT' })
    await assert.rejects(sb.files.download('none', join(dir, 'never')), NotFoundError)
    await assert.rejects(readFile(join(dir, 'never')), { code: 'ENOENT' })
  } finally {
    await rm(dir, { recursive: true })
  }
})

test('fork, diff, merge, hibernate, checkpoints, lineage', async () => {
  const parent = await create({ metadata: { family: 'yes' } })
  await parent.files.write('same', '1')
  const [a, b] = await parent.fork(2)
  assert.ok(a && b)
  assert.deepEqual([a.info.parent, a.info.origin, a.metadata], [parent.id, 'fork', { family: 'yes' }])
  await a.files.write('only-a', 'x')
  const saved = await parent.checkpoints.create('first')
  assert.deepEqual([saved.name, saved.kind, saved.sandbox], ['first', 'full', parent.id])
  await assert.rejects(parent.checkpoints.create('first'), RametError)
  const disk = await parent.checkpoints.create(undefined, { kind: 'disk' })
  assert.deepEqual((await collect(parent.checkpoints.list())).map((c) => c.id), [disk.id, saved.id])
  assert.equal((await collect(server.client.checkpoints.list({ limit: 1 }))).length, 1)
  assert.equal((await server.client.checkpoints.get(saved)).name, 'first')

  await parent.files.write('later', 'x')
  await parent.checkpoints.restore(saved)
  assert.equal(await parent.files.exists('later'), false)
  const spawned = await parent.checkpoints.spawn(saved, { metadata: { of: 'checkpoint' } })
  assert.deepEqual([spawned.info.origin, spawned.info.checkpoint], ['checkpoint', saved.id])
  assert.equal(await spawned.files.read('same'), '1')
  await parent.checkpoints.delete(disk)
  await assert.rejects(server.client.checkpoints.get(disk), NotFoundError)

  const family = await parent.lineage()
  assert.ok([parent, a, b, spawned].every((s) => family.sandboxes.some((f) => f.id === s.id)))
  await parent.mergeInto(a)
  assert.equal(await parent.files.read('only-a'), 'x')
  await a.refresh()
  assert.equal(a.info.mergedInto, parent.id)
  await assert.rejects(parent.mergeInto(parent), InvalidRequestError)

  assert.equal((await b.hibernate()).status, 'hibernated')
  assert.equal(await b.isRunning(), true)
  assert.equal((await b.wake()).status, 'running')
  await Promise.all([parent.delete(), b.delete(), spawned.delete()])
  await a.delete()
})

test('a persistent sandbox becomes a Space, which is resumed once', async () => {
  const made = await create({ persistent: true, idleTimeout: 1, metadata: { space: 'yes' } })
  for await (const event of made.events()) if (event.type === 'space_made') break
  const space = (await collect(server.client.spaces.list())).find((s) => s.sandbox === made.id)
  assert.ok(space)
  assert.equal((await server.client.spaces.get(space)).id, space.id)
  const resumed = await server.client.spaces.resume(space, { idleTimeout: 0 })
  assert.deepEqual([resumed.info.origin, resumed.info.space, resumed.info.idleTimeoutS], ['space', space.id, 0])
  await assert.rejects(server.client.spaces.get(space), NotFoundError)
  await resumed.delete()
})

test('events: what there is, what happens, and on from any', async () => {
  const made = await create()
  await made.hibernate()
  const past = await collect(made.events({ follow: false }))
  assert.deepEqual(past.map((e) => e.type).filter((t) => ['creating', 'running', 'hibernated'].includes(t)), ['creating', 'running', 'hibernated'])
  assert.ok(past[0] && past[0].time instanceof Date)
  const rest = await collect(made.events({ follow: false, since: past[0].id }))
  assert.deepEqual(rest.map((e) => e.id), past.slice(1).map((e) => e.id))

  const last = past.at(-1)
  assert.ok(last)
  const next: SandboxEvent[] = []
  const following = (async () => {
    for await (const event of server.client.events({ since: last.id, sandbox: made.id })) {
      next.push(event)
      if (event.type === 'stopped') return
    }
  })()
  await made.delete()
  await soon(following, 'the event of the end')
  assert.equal(next.at(-1)?.cause, 'delete')
  const stop = new AbortController()
  const waiting = collect(server.client.events({ since: next.at(-1)?.id ?? 0, sandbox: made.id, signal: stop.signal }))
  stop.abort()
  await assert.rejects(soon(waiting, 'the abort'), { name: 'AbortError' })
})

test('the server: info, usage, metrics, templates, keys, projects', async () => {
  const { client } = server
  const info = await client.info()
  assert.deepEqual([info.driver, info.auth, info.startedAt instanceof Date], ['fake', true, true])
  assert.ok((await client.usage()).sandboxes.some((s) => s.id === sb.id))
  assert.equal((await client.capacity()).pool.size, 0)
  assert.ok((await sb.metrics()).memoryTotalBytes > 0)
  assert.ok((await client.templates.list()).length > 0)
  const admin = server.connect({ apiKey: server.adminKey })
  const project = await admin.projects.set('limited', { maxSandboxes: 1 })
  assert.deepEqual([project.maxSandboxes, (await admin.projects.get('limited')).sandboxes], [1, 0])
  const key = await admin.keys.create({ name: 'k', project: 'limited' })
  assert.ok((await admin.keys.list({ project: 'limited' })).some((k) => k.id === key.id && !('key' in k)))
  const limited = server.connect({ apiKey: key.key })
  const only = await Sandbox.create({ client: limited })
  await assert.rejects(Sandbox.create({ client: limited }), (err) => err instanceof QuotaError && err.code === 'quota_sandboxes' && err.status === 429)
  await assert.rejects(Sandbox.connect(sb.id, { client: limited }), (err) => err instanceof NotFoundError && /another key/.test(err.message))
  await only.delete()
  await admin.keys.delete(key.id)
  await assert.rejects(limited.info(), AuthenticationError)
})

test('errors say what to do, and which request it was', async () => {
  const wrong = server.connect({ apiKey: 'rmt_wrong' })
  await assert.rejects(wrong.info(), (err) => {
    assert.ok(err instanceof AuthenticationError)
    assert.deepEqual([err.code, err.status, err.name], ['invalid_api_key', 401, 'AuthenticationError'])
    assert.match(err.message, /RAMET_API_KEY.*ramet keys create.*request /)
    assert.ok(err.requestId !== '' && err.message.includes(err.requestId))
    return true
  })
  await assert.rejects(create({ vcpus: 3 }), (err) => err instanceof InvalidRequestError && err.code === 'invalid_vcpus')
  await assert.rejects(Sandbox.connect('../keys', { client: server.client }), NotFoundError)
  await assert.rejects(Sandbox.connect('..', { client: server.client }), /the id of the call/)
  await assert.rejects(server.client.api.request('get', '/v1/nothing' as never), (err) => err instanceof NotFoundError && err.code === 'no_such_path')
})

test('many calls at a time', async () => {
  const runs = await Promise.all(Array.from({ length: 30 }, (_, i) => sb.commands.run(['echo', String(i)])))
  assert.deepEqual(runs.map((r) => r.stdout), Array.from({ length: 30 }, (_, i) => `${i}\n`))
})

test('an execution is plain data for JSON', async () => {
  const run: Execution = await sb.runCode('print(1); 2')
  const data = JSON.parse(JSON.stringify(run)) as Record<string, unknown>
  assert.deepEqual([data['text'], data['stdout'], data['exitCode'], data['runId']], ['2', '1\n', 0, run.runId])
})

test('contexts have variables of their own', async () => {
  const a = await sb.contexts.create('python', { cwd: '/tmp' })
  const b = await sb.contexts.create()
  assert.deepEqual([a.language, a.cwd], ['python', '/tmp'])
  await sb.runCode('x = 1', { context: a })
  await sb.runCode('x = 2', { context: b.id })
  assert.equal((await sb.runCode('x', { context: a })).text, '1')
  assert.equal((await sb.runCode('import os; os.getcwd()', { context: a })).text, "'/tmp'")
  assert.ok((await sb.contexts.list()).some((c) => c.id === a.id))
  await sb.contexts.restart(a)
  assert.equal((await sb.runCode('x', { context: a })).error?.name, 'NameError')
  await sb.contexts.remove(b)
  await assert.rejects(sb.runCode('x', { context: b }), NotFoundError)
})

test('terminals: input, size, what they show, their end', async () => {
  let shown = ''
  const decoder = new TextDecoder()
  const pty = await sb.pty.create({ columns: 100, rows: 30, cwd: '/', tag: 'mine', onData: (data) => void (shown += decoder.decode(data, { stream: true })) })
  const until = (what: RegExp) =>
    soon((async () => { while (!what.test(shown)) await new Promise((r) => setTimeout(r, 10)) })(), `the terminal shows ${what}: ${shown}`)
  await pty.sendInput('stty size\n')
  await until(/30 100/)
  await pty.resize(120, 40)
  await Promise.all([...'stty size\n'].map((c) => pty.sendInput(c)))
  await until(/40 120/)
  assert.ok((await sb.commands.list()).some((p) => p.tag === 'mine' && p.pty === true))
  const other = await sb.pty.connect(pty.pid, { fromSeq: 0 })
  await pty.sendInput('exit 7\n')
  assert.deepEqual([(await soon(pty.wait(), 'the end')).code, (await soon(other.wait(), 'the end')).code], [7, 7])

  const left = await sb.pty.create({ command: ['sleep', '600'] })
  const waiting = left.wait()
  left.disconnect()
  await assert.rejects(soon(waiting, 'the disconnect'), { name: 'AbortError' })
  assert.equal(await sb.pty.kill(left.id), true)
  const printed: string[] = []
  for await (const data of await sb.pty.create({ command: 'echo from a terminal' })) printed.push(new TextDecoder().decode(data))
  assert.match(printed.join(''), /from a terminal\r\n/)
})

test('watches tell what changes, until they are closed', async () => {
  await sb.files.mkdir('watched')
  const watch = await sb.files.watch('watched', { recursive: true, info: true })
  await sb.files.write('watched/sub/new.txt', 'hello')
  for await (const event of watch) {
    if (event.type !== 'change' || event.path !== 'sub/new.txt') continue
    assert.ok(['create', 'write', 'chmod'].includes(event.change))
    assert.equal(event.info?.type, 'file')
    break
  }
  assert.deepEqual(await watch.next(), { done: true, value: undefined })
  const idle = await sb.files.watch('watched')
  const ending = collect(idle)
  idle.close()
  assert.deepEqual(await soon(ending, 'the end of the watch'), [])
  await assert.rejects(sb.files.watch('none'), NotFoundError)
})

test('attributes of files, deadlines, hosts of previews', async () => {
  const info = await sb.files.write('labelled', 'x', { attributes: { origin: 'a=b', lang: 'de' } })
  assert.deepEqual(info.attributes ?? (await sb.files.stat('labelled')).attributes, { origin: 'a=b', lang: 'de' })
  const ends = await create({ endsIn: 3600, atEnd: 'hibernate' })
  const before = ends.info.endsAt?.getTime() ?? 0
  assert.ok(before > Date.now() + 3_000_000 && ends.info.atEnd === 'hibernate')
  assert.ok(((await ends.update({ endsIn: 7200 })).endsAt?.getTime() ?? 0) > before)
  assert.equal((await ends.update({ endsIn: 0 })).endsAt, undefined)
  await ends.delete()
  await assert.rejects(sb.getHost(0), InvalidRequestError)
})

test('connections to ports: both directions, half-closed, refused, closed', async (t) => {
  // The ports of these machines are those of this host.
  const echo = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {})
    socket.write('hello ')
    socket.pipe(socket)
  }).listen(0, '127.0.0.1')
  t.after(() => echo.close())
  await once(echo, 'listening')
  const { port } = echo.address() as AddressInfo
  assert.ok((await sb.ports.list()).includes(port))
  const big = Buffer.alloc(3 << 20, 'abc')
  const connection = await sb.ports.connect(port)
  const sent = connection.send(big).then(() => connection.sendEof())
  const got = Buffer.concat(await soon(collect(connection), 'the echo'))
  await sent
  assert.ok(got.subarray(0, 6).toString() === 'hello ' && got.subarray(6).equals(big))
  {
    await using second = await sb.ports.connect(port)
    for await (const part of second) {
      assert.equal(Buffer.from(part).toString(), 'hello ')
      break
    }
  }
  await assert.rejects(sb.ports.connect(1), (err) => err instanceof ConflictError && err.code === 'port_closed')
})

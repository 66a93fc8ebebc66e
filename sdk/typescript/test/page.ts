// What scripts/test-browser.mjs runs in a page of a browser, bundled. Each check throws what is wrong.

import { AuthenticationError, ConnectionError, InvalidRequestError, NotFoundError, QuotaError, Ramet, RametError, Sandbox, UnsupportedError } from 'ramet'

export interface Target {
  url: string
  key: string
}

/** What became of one check. */
export interface Outcome {
  name: string
  ms: number
  error?: string
}

function equal(got: unknown, want: unknown): void {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
  if (a !== b) throw new Error(`${a}, not ${b}`)
}

function ok(value: unknown, what: string): asserts value {
  if (!value) throw new Error(what)
}

async function rejected(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise
  } catch (err) {
    return err
  }
  throw new Error('it did not fail')
}

async function typed<T extends RametError>(promise: Promise<unknown>, type: new (...args: never[]) => T, code: string, status: number): Promise<T> {
  const err = await rejected(promise)
  ok(err instanceof type, `${String(err)} is no ${type.name}`)
  equal([err.code, err.status], [code, status])
  ok(err.requestId !== '', 'the error has no request id')
  return err
}

let sb: Sandbox

const checks: Record<string, (client: Ramet, target: Target) => Promise<void>> = {
  async 'a sandbox is made'(client) {
    sb = await Sandbox.create({ client, metadata: { from: 'page' } })
    equal([sb.info.status, sb.metadata], ['running', { from: 'page' }])
    ok(sb.info.timingsMs?.['total'] !== undefined, 'no timings')
  },
  async 'code runs'() {
    await sb.runCode('r = 6')
    const run = await sb.runCode('print("hi"); r * 7')
    equal([run.text, run.stdout, run.exitCode], ['42', 'hi\n', 0])
    ok(run.runId !== '', 'the header with the id of the run cannot be read')
    equal((await sb.runCode('1/0')).error?.name, 'ZeroDivisionError')
  },
  // The code goes on only when the page has seen its first line.
  async 'output comes while code runs'() {
    const seen: string[] = []
    const code = 'import os, time\nprint("first", flush=True)\nwhile not os.path.exists(os.path.expanduser("~/go")): time.sleep(0.01)\nprint("second")'
    for await (const e of sb.runCodeStream(code, { timeout: 30 })) {
      if (e.type !== 'stdout') {
        if (e.type === 'exit') seen.push(`exit ${e.code}`)
        continue
      }
      seen.push(e.text)
      if (e.text === 'first\n') await sb.files.write('go', '')
    }
    equal(seen, ['first\n', 'second\n', 'exit 0'])
  },
  async 'code that is aborted ends'() {
    const stop = new AbortController()
    const err = await rejected(sb.runCode('print(1, flush=True)\nimport time; time.sleep(600)', { signal: stop.signal, onStdout: () => stop.abort() }))
    equal((err as Error).name, 'AbortError')
    equal((await sb.runCode('r')).text, '6')
  },
  async 'commands run, in the background too'() {
    equal((await sb.commands.run('read x; echo $x; exit 3', { input: 'line\n' })).exitCode, 3)
    const handle = await sb.commands.run('cat', { background: true, stdin: true })
    await handle.sendStdin('typed', { eof: true })
    equal((await handle.wait()).stdout, 'typed')
  },
  async 'a terminal'() {
    let text = ''
    const decoder = new TextDecoder()
    const shell = await sb.pty.create({ command: ['bash', '--norc'], onData: (bytes) => void (text += decoder.decode(bytes, { stream: true })) })
    await shell.sendInput('echo $((40+2))done; exit 3\n')
    equal((await shell.wait()).code, 3)
    ok(text.includes('42done'), text)
  },
  async 'files go there and back'() {
    await sb.files.write('dir/text', 'grüße')
    equal(await sb.files.read('dir/text'), 'grüße')
    const bytes = new Uint8Array(3 << 20)
    for (let i = 0; i < bytes.length; i += 65536) crypto.getRandomValues(bytes.subarray(i, i + 65536))
    const digest = async (data: BufferSource) => Array.from(new Uint8Array(await crypto.subtle.digest('SHA-256', data)))
    equal((await sb.files.write('dir/blob', new Blob([bytes]))).size, bytes.length)
    equal(await digest((await sb.files.read('dir/blob', { format: 'bytes' })) as Uint8Array<ArrayBuffer>), await digest(bytes))
    await sb.files.write('dir/stream', new Blob(['a', 'b']).stream())
    equal(await new Response(await sb.files.read('dir/stream', { format: 'stream' })).text(), 'ab')
    await sb.files.rename('dir/stream', 'dir/renamed')
    await sb.files.remove('dir/blob')
    equal((await sb.files.list('dir')).map((f) => f.path.split('/').pop()).sort(), ['renamed', 'text'])
  },
  async 'a sandbox is changed'() {
    equal((await sb.update({ idleTimeout: 60 })).idleTimeoutS, 60)
  },
  async 'errors of the server have their types'(client, target) {
    await typed(sb.files.read('none'), NotFoundError, 'file_not_found', 404)
    await typed(Sandbox.create({ client, vcpus: 99 }), InvalidRequestError, 'invalid_vcpus', 400)
    await typed(Sandbox.connect('sbx_' + '0'.repeat(32), { client }), NotFoundError, 'sandbox_not_found', 404)
    await typed(new Ramet({ url: target.url, apiKey: 'wrong' }).info(), AuthenticationError, 'invalid_api_key', 401)
    await typed(new Ramet({ url: target.url }).info(), AuthenticationError, 'missing_api_key', 401)
    const quota = await typed(Sandbox.create({ client }), QuotaError, 'quota_sandboxes', 429)
    ok(quota.retryAfter > 0, 'the header Retry-After cannot be read')
    const away = await rejected(new Ramet({ url: 'http://127.0.0.1:65535' }).info())
    ok(away instanceof ConnectionError && away.code === 'unreachable', String(away))
    const port = await rejected(sb.ports.connect(80))
    ok(port instanceof UnsupportedError && port.code === 'no_web_socket', String(port))
  },
  // Without the package: each header that the API reads may be sent, and each that it sends may be read.
  async 'headers pass'(_client, target) {
    const call = (path: string, init: RequestInit) =>
      fetch(target.url + path, { ...init, headers: { authorization: `Bearer ${target.key}`, ...(init.headers as Record<string, string>) } })
    const part = await call(`/v1/sandboxes/${sb.id}/files?path=dir/text`, {
      headers: {
        range: 'bytes=0-1', 'x-ramet-wake': 'never', 'x-request-id': 'from-a-page', 'last-event-id': '0', 'x-podflare-region': 'local',
        traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`, tracestate: 'a=b',
      },
    })
    const header = (res: Response, ...names: string[]) => names.map((name) => res.headers.get(name))
    equal([part.status, await part.text(), ...header(part, 'content-range', 'x-file-size', 'x-request-id', 'accept-ranges')], [206, 'gr', 'bytes 0-1/7', '7', 'from-a-page', 'bytes'])
    const body = JSON.stringify({ name: 'c', kind: 'disk' })
    const save = () => call(`/v1/sandboxes/${sb.id}/checkpoints`, { method: 'POST', body, headers: { 'content-type': 'application/json', 'idempotency-key': 'page-1' } })
    const first = await save()
    equal([first.status, ...header(first, 'idempotent-replayed')], [201, null])
    ok(/total;dur=/.test(first.headers.get('server-timing') ?? ''), 'the header Server-Timing cannot be read')
    const second = await save()
    equal([second.status, ...header(second, 'idempotent-replayed')], [201, 'true'])
    equal(await second.json(), await first.json())
    equal((await call('/v1/sandboxes', { method: 'HEAD' })).status, 200)
  },
  async 'it is deleted'(client) {
    await sb.delete()
    equal((await Sandbox.connect(sb.id, { client })).info.status, 'stopped')
  },
}

/** Runs all checks, one after the other. */
export async function run(target: Target): Promise<Outcome[]> {
  const client = new Ramet({ url: target.url, apiKey: target.key })
  const outcomes: Outcome[] = []
  for (const [name, check] of Object.entries(checks)) {
    const begin = performance.now()
    const outcome: Outcome = { name, ms: 0 }
    try {
      await check(client, target)
    } catch (err) {
      outcome.error = err instanceof Error ? (err.stack ?? String(err)) : String(err)
    }
    outcome.ms = performance.now() - begin
    outcomes.push(outcome)
  }
  return outcomes
}

/** What a page is told that may not call. */
export async function refused(target: Target): Promise<unknown> {
  const err = await rejected(Sandbox.create({ client: new Ramet({ url: target.url, apiKey: target.key }) }))
  ok(err instanceof ConnectionError, String(err))
  return { code: err.code, hint: err.hint }
}

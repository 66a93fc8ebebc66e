// What may go wrong between the client and the server.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type Server as HttpServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, Socket } from 'node:net'
import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'
import { test, type TestContext } from 'node:test'

import { ConfigurationError, ConnectionError, Ramet, RametError, Sandbox, ServerError, TimeoutError, UnavailableError } from 'ramet'
// What is not exported: the reading of streams, with a shorter silence.
import { ndjson, serverSentEvents, within } from '../dist/esm/lines.js'
import type { ByteStream } from '../dist/esm/transport.js'
import { collect, soon } from './harness.js'

async function serve(t: TestContext, listener: RequestListener): Promise<{ url: string; server: HttpServer }> {
  const server = createServer(listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server }
}

const client = (url: string, options = {}) => new Ramet({ url, apiKey: 'k', ...options })
const info = { version: 't', driver: 'd', isolation: 'i', region: 'r', node: 'n', pid: 1, started_at: '2026-01-02T03:04:05Z', uptime_s: 1, auth: true }
const record = { id: 'sbx_1', status: 'running', metadata: { some_key: 'a' }, created_at: '2026-01-02T03:04:05Z', updated_at: '2026-01-02T03:04:05Z' }

/** An address at which packets go nowhere: a listener whose queue is full. */
async function blackHole(t: TestContext): Promise<string> {
  const child = spawn('python3', ['-uc', `
import socket, sys
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(0)
held = []
for _ in range(4):
    s = socket.socket(); s.setblocking(False); s.connect_ex(l.getsockname()); held.append(s)
print(l.getsockname()[1])
sys.stdin.read()`], { stdio: ['pipe', 'pipe', 'inherit'] })
  t.after(async () => {
    const ended = once(child, 'close')
    child.stdin.end()
    await ended
  })
  const [port] = await once(createInterface({ input: child.stdout }), 'line')
  return `http://127.0.0.1:${port}`
}

test('an address that does not answer is given up after two tries of 2.5 seconds', async (t) => {
  const url = await blackHole(t)
  const begin = performance.now()
  await assert.rejects(Sandbox.create({ client: client(url) }), (err) => {
    assert.ok(err instanceof ConnectionError && !(err instanceof TimeoutError))
    assert.deepEqual([err.code, err.mayHaveRun], ['unreachable', false])
    assert.ok(err.message.includes(url) && /2\.5 s/.test(err.message) && /RAMET_URL/.test(err.message), err.message)
    return true
  })
  const took = performance.now() - begin
  assert.ok(took > 4900 && took < 15_000, `took ${took} ms`)
})

test('a signal ends the wait for a connection at once', async (t) => {
  const url = await blackHole(t)
  const begin = performance.now()
  await assert.rejects(client(url).info({ signal: AbortSignal.timeout(50) }), { name: 'TimeoutError', code: 23 })
  assert.ok(performance.now() - begin < 2400)
})

test('a refused connection is tried once more, then told', async (t) => {
  const { url, server } = await serve(t, () => {})
  server.close()
  await assert.rejects(client(url).info(), (err) => err instanceof ConnectionError && /refused/.test(err.message) && !err.mayHaveRun)
  // A server that comes meanwhile is found by the second try, with a body that can be read once only.
  const port = Number(new URL(url).port)
  const late = createServer((req, res) => {
    req.resume().on('end', () => res.end(JSON.stringify({ path: '/x', type: 'file', size: 3, mode: '0644', modified_at: '2026-01-02T03:04:05Z' })))
  })
  t.after(() => late.close())
  async function* once() {
    yield 'abc'
  }
  const sb = sandboxOf(client(url))
  const written = sb.files.write('x', once())
  setTimeout(() => late.listen(port, '127.0.0.1'), 20)
  assert.equal((await written).size, 3)
  late.closeAllConnections()
})

function sandboxOf(c: Ramet): Sandbox {
  return new (Sandbox as unknown as new (client: Ramet, record: object) => Sandbox)(c, record)
}

test('a call that may have run is not made again', async (t) => {
  const calls: string[] = []
  const { url } = await serve(t, (req) => {
    calls.push(`${req.method} ${req.url}`)
    req.resume().on('end', () => req.socket.destroy())
  })
  const sb = sandboxOf(client(url))
  const lost = (err: unknown) => err instanceof ConnectionError && err.code === 'connection_lost' && err.mayHaveRun && /look before you repeat/.test(err.message)
  await assert.rejects(sb.runCode('1'), lost)
  await assert.rejects(sb.hibernate(), lost)
  await assert.rejects(sb.files.write('x', 'y'), lost)
  assert.deepEqual(calls, ['POST /v1/sandboxes/sbx_1/exec', 'POST /v1/sandboxes/sbx_1/hibernate', 'PUT /v1/sandboxes/sbx_1/files?path=x&parents=true'])
})

test('a read, and a create with its key, are made once more when the connection breaks', async (t) => {
  const seen: { method: string; key: string | undefined; body: string }[] = []
  const { url } = await serve(t, (req, res) => {
    let body = ''
    req.on('data', (d) => (body += d)).on('end', () => {
      seen.push({ method: req.method ?? '', key: req.headers['idempotency-key'] as string | undefined, body })
      if (seen.length % 2 === 1) req.socket.destroy()
      else res.end(JSON.stringify(req.method === 'GET' ? info : record))
    })
  })
  const c = client(url)
  assert.equal((await c.info()).startedAt.toISOString(), '2026-01-02T03:04:05.000Z')
  const made = await Sandbox.create({ client: c, metadata: { a: 'b' } })
  assert.equal(made.id, 'sbx_1')
  assert.deepEqual(made.metadata, { some_key: 'a' })
  assert.equal(seen.length, 4)
  assert.ok(seen[2]?.key && seen[2].key.length > 20)
  assert.deepEqual(seen[2], seen[3])
})

test('connections are kept, without Nagle, and calls at one time have one each', async (t) => {
  const sockets = new Set<Socket>()
  const { url } = await serve(t, (req, res) => {
    sockets.add(req.socket)
    req.resume().on('end', () => res.end(JSON.stringify(info)))
  })
  const delays: (boolean | undefined)[] = []
  const original = Socket.prototype.setNoDelay
  t.mock.method(Socket.prototype, 'setNoDelay', function (this: Socket, on?: boolean) {
    if (this.remotePort === Number(new URL(url).port) || this.connecting) delays.push(on)
    return original.call(this, on)
  })
  const c = client(url)
  for (let i = 0; i < 5; i++) await c.info()
  assert.equal(sockets.size, 1)
  assert.ok(delays.length >= 1 && delays.every((on) => on === true))
  await Promise.all([c.info(), c.info(), c.info()])
  assert.equal(sockets.size, 3)
  c.close()
})

test('a stream that was read to its end leaves its connection for the next call', async (t) => {
  const sockets = new Set<Socket>()
  const { url } = await serve(t, (req, res) => {
    sockets.add(req.socket)
    res.setHeader('x-run-id', 'run')
    res.write('\n\n{"type":"stdout","data":"a","seq":0,"ts":1}\n{"type":"new_type","data":1,"seq":1,"ts":1}\n{"type":"exit","data":0,"seq":2,"ts":1}\n')
    setTimeout(() => res.end(), 5)
  })
  const sb = sandboxOf(client(url))
  for (let i = 0; i < 3; i++) {
    assert.equal((await sb.runCode('x')).stdout, 'a')
    await new Promise((r) => setTimeout(r, 100))
  }
  assert.equal(sockets.size, 1)
})

test('streams: what is not a whole one is an error', async (t) => {
  const bodies: Record<string, { body: string; cut?: boolean; check: (err: unknown) => boolean }> = {
    'no exit': { body: '{"type":"stdout","data":"a","seq":0,"ts":1}\n', check: (e) => e instanceof ConnectionError && e.code === 'connection_lost' },
    'half a line': { body: '{"type":"exit","data":0', check: (e) => e instanceof ConnectionError },
    nothing: { body: '', check: (e) => e instanceof ConnectionError },
    nonsense: { body: '<html>\n', check: (e) => e instanceof RametError && e.code === 'bad_stream' && /url/.test(e.message) },
    cut: { body: '\n', cut: true, check: (e) => e instanceof ConnectionError && e.mayHaveRun },
    'stream error': {
      body: '{"type":"stream_error","data":"the server is shutting down","code":"shutting_down","seq":0,"ts":1}\n',
      check: (e) => e instanceof UnavailableError && e.code === 'shutting_down' && e.requestId === 'req-1' && e.status === 0,
    },
  }
  for (const [name, { body, cut, check }] of Object.entries(bodies)) {
    await t.test(name, async (t) => {
      const { url } = await serve(t, (_, res) => {
        res.setHeader('x-request-id', 'req-1')
        res.write(body, () => (cut ? res.destroy() : res.end()))
        if (body === '') res.end()
      })
      await assert.rejects(sandboxOf(client(url)).runCode('x'), check)
    })
  }
})

test('a background command is followed again when its connection breaks', async (t) => {
  const asked: string[] = []
  const { url } = await serve(t, (req, res) => {
    asked.push(`${req.method} ${req.url?.replace(/^.*processes/, '')}`)
    if (req.method === 'POST') res.write('{"type":"started","data":7,"process":"p1","seq":0,"ts":1}\n')
    else if (asked.length === 2) res.write('{"type":"stdout","data":"a","seq":1,"ts":1}\n', () => res.destroy())
    else res.end('{"type":"stdout","data":"b","seq":2,"ts":1}\n{"type":"exit","data":0,"seq":3,"ts":1}\n')
  })
  const handle = await sandboxOf(client(url)).commands.run('x', { background: true })
  assert.deepEqual([handle.id, handle.pid], ['p1', 7])
  assert.equal((await handle.wait()).stdout, 'ab')
  assert.deepEqual(asked, ['POST ', 'GET /p1/stream?from_seq=1', 'GET /p1/stream?from_seq=2'])
})

test('events go on over a break and a restart, from the last one', async (t) => {
  const asked: string[] = []
  const event = (id: number) => `id: ${id}\nevent: updated\ndata: {"id":${id},"time":"2026-01-02T03:04:05Z","sandbox":"s","type":"updated","state":"","reason":"","cause":"","data":{}}\n\n`
  const { url } = await serve(t, (req, res) => {
    asked.push(new URL(req.url ?? '', 'http://x').searchParams.get('since') ?? '')
    res.setHeader('content-type', 'text/event-stream')
    switch (asked.length) {
      case 1:
        res.write(`:\n\nevent: gap\ndata: {"reason":"older ones are forgotten"}\n\n${event(4)}`, () => res.destroy())
        break
      case 2:
        res.end(`${event(5)}event: error\ndata: {"error":"shutting down","code":"shutting_down","request_id":"r"}\n\n`)
        break
      case 3:
        res.writeHead(503, { 'content-type': 'application/json' }).end('{"error":"not yet","code":"shutting_down","request_id":"r"}')
        break
      default:
        res.write(event(6))
    }
  })
  const got: string[] = []
  for await (const e of client(url).events({ since: 3 })) {
    got.push(`${e.type} ${e.id}`)
    if (e.id === 6) break
  }
  assert.deepEqual([got, asked], [['gap 0', 'updated 4', 'updated 5', 'updated 6'], ['3', '4', '5', '5']])
})

test('no answer at all is told after the time that was set', async (t) => {
  const { url } = await serve(t, () => {})
  const c = client(url, { answerTimeout: 0.2 })
  await assert.rejects(c.info(), (err) => err instanceof TimeoutError && err instanceof ConnectionError && err.mayHaveRun && /0\.2 s/.test(err.message))
})

test('a stream without its signs of life is dead; a reader who is slow is not', async () => {
  const bodyOf = (chunks: (string | number)[], end = true): ByteStream & { cancelled: boolean } => {
    let cancel: () => void = () => {}
    const stopped = new Promise<void>((r) => (cancel = r))
    return {
      cancelled: false,
      cancel() {
        this.cancelled = true
        cancel()
      },
      async *[Symbol.asyncIterator]() {
        for (const c of chunks) {
          if (typeof c === 'string') yield new TextEncoder().encode(c)
          else await new Promise((r) => setTimeout(r, c))
        }
        if (!end) await stopped
      },
    }
  }
  const silent = bodyOf(['{"a":1}\n'], false)
  const seen: unknown[] = []
  await assert.rejects(
    soon((async () => { for await (const v of ndjson(silent, 100)) seen.push(v) })(), 'the dead stream'),
    (err) => err instanceof TimeoutError && err.code === 'stream_dead',
  )
  assert.deepEqual([seen, silent.cancelled], [[{ a: 1 }], true])

  const alive = bodyOf(['\n', 60, '\n', 60, '\n', 60, '{"b":"', 'é"}', '\n{"c":1}\n'])
  assert.deepEqual(await collect(ndjson(alive, 2000)), [{ b: 'é' }, { c: 1 }])
  const slow: unknown[] = []
  for await (const v of within(bodyOf(['a', 'b']), 50)) {
    await new Promise((r) => setTimeout(r, 120))
    slow.push(v)
  }
  assert.equal(slow.length, 2)
  assert.deepEqual(await collect(serverSentEvents(bodyOf([':\n\nid: 1\nevent: x\nda', 'ta: a\ndata: b\n\n']), 1000)), [{ id: '1', event: 'x', data: 'a\nb' }])
})

test('an answer that comes before the body has been sent is taken', async (t) => {
  const { url } = await serve(t, (_, res) => {
    res.writeHead(507, { 'content-type': 'application/json' }).end('{"error":"the disk is full","code":"no_space","request_id":"r"}')
  })
  let sent = 0
  async function* endless() {
    for (;;) {
      sent++
      yield new Uint8Array(64 << 10)
      await new Promise((r) => setTimeout(r, 1))
    }
  }
  await assert.rejects(soon(sandboxOf(client(url)).files.write('x', endless()), 'the answer'), (err) => err instanceof ServerError && err.code === 'no_space')
  const then = sent
  await new Promise((r) => setTimeout(r, 200))
  assert.ok(sent <= then + 2, 'it goes on reading what nobody takes')
})

test('a body whose source fails ends the call with that', async (t) => {
  let broken: IncomingMessage | undefined
  const { url } = await serve(t, (req) => {
    broken = req
    req.resume()
  })
  async function* failing() {
    yield 'a'
    throw new Error('the source is empty')
  }
  await assert.rejects(soon(sandboxOf(client(url)).files.write('x', failing()), 'the failure'), /the source is empty/)
  assert.equal(broken?.complete ?? false, false)
})

test('what is not a Ramet server is told', async (t) => {
  const { url } = await serve(t, (req, res) => res.writeHead(req.url === '/v1/usage' ? 502 : 200, { 'content-type': 'text/html' }).end('<html>'))
  await assert.rejects(client(url).info(), (err) => err instanceof RametError && err.code === 'not_ramet' && err.status === 200 && /RAMET_URL/.test(err.message))
  await assert.rejects(client(url).usage(), (err) => err instanceof RametError && err.code === 'not_ramet' && err.status === 502)
  const tcp = createTcpServer((s) => s.resume().on('error', () => {}).end('SSH-2.0\r\n'))
  tcp.listen(0, '127.0.0.1')
  await once(tcp, 'listening')
  t.after(() => tcp.close())
  await assert.rejects(client(`http://127.0.0.1:${(tcp.address() as AddressInfo).port}`).info(), RametError)
})

test('settings that make no sense', () => {
  for (const options of [{ url: '127.0.0.1:7070' }, { url: 'ftp://x' }, { url: 'http://x', apiKey: 'a\nb' }, { url: 'http://x', connectTimeout: 0 }, { url: 'http://x', connectTimeout: NaN }]) {
    assert.throws(() => new Ramet(options), ConfigurationError)
  }
  assert.equal(new Ramet({ url: 'http://127.0.0.1:1/' }).url, 'http://127.0.0.1:1')
})

test('a program ends although connections are kept', async (t) => {
  const { url } = await serve(t, (_, res) => res.end(JSON.stringify(info)))
  const child = spawn(process.execPath, ['--input-type=module', '-e', "import { Ramet } from 'ramet'; console.log((await new Ramet().info()).version)"], {
    cwd: new URL('..', import.meta.url),
    env: { ...process.env, RAMET_URL: url, RAMET_API_KEY: 'k' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const begin = performance.now()
  const [code] = await soon(once(child, 'close') as Promise<[number]>, 'the end of the program')
  assert.equal(code, 0)
  assert.ok(performance.now() - begin < 20_000)
})

test('WebSockets that are none, or break, are told', async (t) => {
  let accept = (key: string) => createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
  let frames: Buffer[] = []
  const { url, server } = await serve(t, (_, res) => {
    res.writeHead(409, { 'content-type': 'application/json' }).end('{"error":"nothing listens","code":"port_closed","request_id":"r"}')
  })
  server.on('upgrade', (req, socket) => {
    socket.on('error', () => {})
    t.after(() => socket.destroy())
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept(String(req.headers['sec-websocket-key']))}\r\n\r\n`)
    for (const frame of frames) socket.write(frame)
    if (frames.length > 0) socket.end()
    else socket.on('data', (d) => socket.write(Buffer.concat([Buffer.from([0x82, 1, d.length & 0x7f]), Buffer.from([0x88, 2, 3, 0xe8])])))
  })
  const { ports } = sandboxOf(client(url))
  const text = async () => Buffer.concat(await soon(collect(await ports.connect(1)), 'the end')).toString()

  // In pieces, with a ping between them, and closed in order.
  frames = [Buffer.from([0x02, 1, 0x61]), Buffer.from([0x89, 0]), Buffer.from([0x80, 1]), Buffer.from('b'), Buffer.from([0x88, 2, 3, 0xe8])]
  assert.equal(await text(), 'ab')
  frames = [Buffer.concat([Buffer.from([0x88, 2 + 16, 3, 0xf3]), Buffer.from('connection_reset')])]
  await assert.rejects(text(), (err) => err instanceof ConnectionError && err.code === 'connection_reset')
  frames = [Buffer.from([0x82, 5, 1])]
  await assert.rejects(text(), (err) => err instanceof ConnectionError && err.code === 'connection_lost')
  for (const bad of [[0x82, 0x81, 0, 0, 0, 0, 0], [0xc2, 0], [0x82, 127, 0, 0, 1, 0, 0, 0, 0, 0]]) {
    frames = [Buffer.from(bad)]
    await assert.rejects(text(), (err) => err instanceof RametError && err.code === 'bad_stream')
  }
  frames = []
  const open = await ports.connect(1)
  await open.send('x')
  assert.equal((await soon(collect(open), 'the answer')).length, 1)
  await assert.rejects(open.send('y'), ConnectionError)
  accept = () => 'nonsense'
  await assert.rejects(ports.connect(1), (err) => err instanceof RametError && err.code === 'not_ramet')
  server.removeAllListeners('upgrade')
  await assert.rejects(ports.connect(1), (err) => err instanceof RametError && err.code === 'port_closed')
})

// Node (and what speaks Node's modules: Bun, Deno). HTTP is node:http and not the
// global fetch, whose connect timeout cannot be set without another package.

import { randomUUID } from 'node:crypto'
import { createReadStream, createWriteStream, readFileSync, openSync, readSync, closeSync } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import * as http from 'node:http'
import * as https from 'node:https'
import type { Socket } from 'node:net'
import { join, resolve } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

import { ConfigurationError, ConnectionError, RametError, TimeoutError } from '../errors.js'
import type { ByteStream, Data, LocalServer, Platform, Transport, TransportOptions, TransportRequest, TransportResponse } from '../transport.js'
import { version } from '../version.js'
import { acceptOf, newKey, WebSocketStream } from './websocket.js'

/** How long a connection is kept for the next call, in milliseconds. The server keeps it for 2 minutes. */
const idle = 60_000
/** The name by which programs of this machine ask a server for the certificate in its server.json. */
const localName = 'local.ramet.invalid'
/** The silence, in milliseconds, after which TCP asks whether the server is still there. */
const probe = 15_000
/** How long TLS may take after the connection is there, in milliseconds. */
const handshake = 10_000

class NodeTransport implements Transport {
  readonly #options: TransportOptions
  readonly #agent: http.Agent | https.Agent
  readonly #request: typeof http.request
  readonly #tls: boolean

  constructor(options: TransportOptions) {
    this.#options = options
    this.#tls = options.base.startsWith('https:')
    const agent = { keepAlive: true, timeout: idle, scheduling: 'lifo' as const, noDelay: true }
    if (this.#tls) {
      const tls: https.AgentOptions = { ...agent }
      if (options.ca !== undefined) tls.ca = options.ca
      if (options.serverName !== undefined) tls.servername = options.serverName
      this.#agent = new https.Agent(tls)
      this.#request = https.request
    } else {
      this.#agent = new http.Agent(agent)
      this.#request = http.request
    }
  }

  close(): void {
    this.#agent.destroy()
  }

  send(request: TransportRequest): Promise<TransportResponse> {
    return new Promise((resolve, reject) => {
      const { signal } = request
      if (signal?.aborted) {
        reject(signal.reason)
        return
      }
      const headers: Record<string, string> = { ...request.headers }
      const { chunk, stream, length } = bodyOf(request.body)
      if (length !== undefined) headers['content-length'] = String(length)
      const key = newKey()
      if (request.webSocket) Object.assign(headers, { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': key })

      const req = this.#request(request.url, { method: request.method, headers, agent: this.#agent })
      let connected = false
      let answered = false
      let settled = false
      let res: http.IncomingMessage | undefined
      let connectTimer: NodeJS.Timeout | undefined
      let answerTimer: NodeJS.Timeout | undefined

      const onAbort = () => {
        req.destroy()
        res?.destroy()
        fail(signal?.reason)
      }
      const settle = () => {
        settled = true
        clearTimeout(connectTimer)
        clearTimeout(answerTimer)
      }
      const fail = (err: unknown) => {
        settle()
        if (!answered) signal?.removeEventListener('abort', onAbort)
        reject(err)
      }
      signal?.addEventListener('abort', onAbort, { once: true })

      const sent = () => {
        if (settled) return
        answerTimer = setTimeout(() => {
          fail(noAnswer(this.#options.base, request.answerTimeout))
          req.destroy()
        }, request.answerTimeout)
      }
      const ready = () => {
        clearTimeout(connectTimer)
        if (settled) return
        connected = true
        if (!stream) {
          sent()
          return
        }
        // A stream is read only now, so that it is whole for a second try to connect.
        feed(req, stream, () => settled).then(sent, (err: unknown) => {
          if (answered) return
          fail(err)
          req.destroy()
        })
      }
      req.on('socket', (socket: Socket) => {
        socket.setNoDelay(true)
        socket.setKeepAlive(true, probe)
        if (!socket.connecting) {
          ready()
          return
        }
        const within = (ms: number, what: string) => {
          clearTimeout(connectTimer)
          connectTimer = setTimeout(() => {
            fail(unreachable(this.#options.base, `${what} within ${ms / 1000} s`, undefined))
            req.destroy()
          }, ms)
        }
        within(this.#options.connectTimeout, 'no connection came about')
        if (this.#tls) socket.once('connect', () => within(handshake, 'TLS did not begin'))
        socket.once(this.#tls ? 'secureConnect' : 'connect', ready)
      })
      req.on('error', (err: NodeJS.ErrnoException) => {
        if (answered) return
        fail(connected ? lost(this.#options.base, err) : unreachable(this.#options.base, reason(err), err))
      })
      req.on('upgrade', (r, socket, head) => {
        answered = true
        settle()
        signal?.removeEventListener('abort', onAbort)
        if (!request.webSocket || r.headers['sec-websocket-accept'] !== acceptOf(key)) {
          socket.destroy()
          reject(new RametError(`${this.#options.base} answered with another protocol`, { code: 'not_ramet', hint: 'see whether RAMET_URL or url is right' }))
          return
        }
        resolve({ status: 101, header: () => undefined, body: { cancel() {}, async *[Symbol.asyncIterator]() {} }, messages: new WebSocketStream(socket, head) })
      })
      req.on('response', (r) => {
        answered = true
        res = r
        settle()
        const done = () => signal?.removeEventListener('abort', onAbort)
        r.once('close', done)
        // An answer that did not wait for the whole body is the last of its connection.
        r.once('end', () => {
          if (!req.writableEnded) req.destroy()
        })
        resolve({
          status: r.statusCode ?? 0,
          header: (name) => {
            const v = r.headers[name]
            return Array.isArray(v) ? v.join(', ') : v
          },
          body: new NodeBody(r, this.#options.base, signal),
        })
      })
      if (stream) req.flushHeaders()
      else req.end(chunk)
    })
  }
}

class NodeBody implements ByteStream {
  readonly #res: http.IncomingMessage
  readonly #base: string
  readonly #signal: AbortSignal | undefined

  constructor(res: http.IncomingMessage, base: string, signal: AbortSignal | undefined) {
    this.#res = res
    this.#base = base
    this.#signal = signal
    // Whoever reads is told; without a reader there is nobody to tell.
    res.on('error', () => {})
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for await (const chunk of this.#res) yield chunk as Uint8Array
    } catch (err) {
      if (this.#signal?.aborted) throw this.#signal.reason
      throw lost(this.#base, err)
    }
    if (this.#signal?.aborted) throw this.#signal.reason
    if (!this.#res.complete) throw lost(this.#base, undefined)
  }

  cancel(): void {
    this.#res.destroy()
  }
}

/** bodyOf tells a body that is there from one that comes. */
function bodyOf(body: Data | undefined): { chunk?: string | Uint8Array; stream?: AsyncIterable<Uint8Array | string>; length?: number } {
  if (body === undefined) return {}
  if (typeof body === 'string') return { chunk: body, length: Buffer.byteLength(body) }
  if (body instanceof Uint8Array) return { chunk: body, length: body.byteLength }
  if (body instanceof ArrayBuffer) return { chunk: new Uint8Array(body), length: body.byteLength }
  if (typeof Blob !== 'undefined' && body instanceof Blob) return { stream: iterate(body.stream()), length: body.size }
  return { stream: iterate(body as ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>) }
}

function iterate(body: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>): AsyncIterable<Uint8Array | string> {
  if (Symbol.asyncIterator in body) return body as AsyncIterable<Uint8Array | string>
  return Readable.fromWeb(body as never) as AsyncIterable<Uint8Array>
}

/** feed sends a body as it comes, not faster than the server takes it. It ends early when there is an answer. */
async function feed(req: http.ClientRequest, body: AsyncIterable<Uint8Array | string>, over: () => boolean): Promise<void> {
  for await (const chunk of body) {
    if (over() || req.destroyed) return
    if (chunk.length === 0) continue
    if (!req.write(chunk)) await drained(req)
  }
  if (!req.destroyed) req.end()
}

function drained(req: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      req.off('drain', done).off('close', done).off('response', done).off('error', done)
      resolve()
    }
    req.on('drain', done).on('close', done).on('response', done).on('error', done)
  })
}

function reason(err: NodeJS.ErrnoException): string {
  switch (err.code) {
    case 'ECONNREFUSED':
      return 'the connection was refused'
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'its name cannot be resolved'
  }
  // A connection that was tried at several addresses has one error for each, and no text of its own.
  const all = (err as unknown as { errors?: NodeJS.ErrnoException[] }).errors
  if (!err.message && all?.[0]) return reason(all[0])
  return err.message
}

function unreachable(base: string, why: string, cause: unknown): ConnectionError {
  const details = {
    code: 'unreachable',
    mayHaveRun: false,
    hint: "see whether the server runs ('ramet status', 'ramet up') and whether RAMET_URL or url is right",
    cause,
  }
  const text = `no server answers at ${base}: ${why}`
  return new ConnectionError(text, details)
}

function lost(base: string, cause: unknown): ConnectionError {
  const why = cause instanceof Error && cause.message ? ` (${cause.message})` : ''
  return new ConnectionError(`the connection to ${base} was lost before the end${why}`, {
    code: 'connection_lost',
    mayHaveRun: true,
    hint: 'the call may have had its effect: look before you repeat it',
    cause,
  })
}

function noAnswer(base: string, timeout: number): TimeoutError {
  return new TimeoutError(`${base} has not answered for ${timeout / 1000} s`, {
    code: 'no_answer',
    mayHaveRun: true,
    hint: 'the call may have had its effect: look before you repeat it',
  })
}

interface ServerFile {
  pid?: number
  start_ticks?: number
  boot_id?: string
  url?: string
  local_certificate?: string
}

/** readSmall reads a file of at most 64 KiB. It returns undefined when it cannot be read. */
function readSmall(path: string): string | undefined {
  let fd: number
  try {
    fd = openSync(path, 'r')
  } catch {
    return undefined
  }
  try {
    const b = Buffer.alloc(64 << 10)
    let n = 0
    for (;;) {
      const got = readSync(fd, b, n, b.length - n, null)
      n += got
      if (got === 0 || n === b.length) return b.toString('utf8', 0, n)
    }
  } catch {
    return undefined
  } finally {
    closeSync(fd)
  }
}

/** runs says whether the process that wrote server.json still runs: a pid alone may be another's by now. */
function runs(info: ServerFile): boolean {
  if (!info.pid || readSmall('/proc/sys/kernel/random/boot_id')?.trim() !== info.boot_id) return false
  const stat = readSmall(`/proc/${info.pid}/stat`)
  // The name, in parentheses, may hold anything; start time is field 22.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields !== undefined && fields[0] !== 'Z' && fields[22 - 3] === String(info.start_ticks)
}

function loopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

function local(want: string | undefined): LocalServer | undefined {
  const home = resolve(process.env['RAMET_HOME'] || '/var/lib/ramet')
  const text = readSmall(join(home, 'server.json'))
  if (text === undefined) return undefined
  let info: ServerFile
  let at: URL
  try {
    info = JSON.parse(text) as ServerFile
    at = new URL(info.url ?? '')
  } catch {
    return undefined
  }
  const asked = want === undefined ? at : new URL(want)
  // Its key goes to nobody else: not to another address, and not to what listens there when it is down.
  if (at.protocol !== asked.protocol || at.port !== asked.port || !runs(info)) return undefined
  if (!(loopback(at.hostname) && loopback(asked.hostname)) && !(info.local_certificate && at.hostname === asked.hostname)) return undefined
  const out: LocalServer = { url: asked.origin }
  if (info.local_certificate) {
    out.ca = info.local_certificate
    out.serverName = localName
  }
  const key = readSmall(join(home, 'key'))?.trim()
  if (key) out.apiKey = key
  return out
}

export const platform: Platform = {
  env: (name) => process.env[name] || undefined,
  local: (url) => (process.platform === 'linux' ? local(url) : undefined),
  readCA(path) {
    try {
      return readFileSync(path, 'utf8')
    } catch (cause) {
      throw new ConfigurationError(`the authorities of RAMET_CA cannot be read: ${(cause as Error).message}`, { code: 'bad_ca', cause })
    }
  },
  transport: (options) => new NodeTransport(options),
  userAgent: `ramet-typescript/${version} node/${process.versions.node}`,
  randomId: () => randomUUID(),
  readLocal: async (path) => {
    const file = createReadStream(path, { highWaterMark: 256 << 10 })
    // A file that cannot be opened is told before anything is sent.
    await new Promise<void>((resolve, reject) => file.once('open', () => resolve()).once('error', reject))
    return file
  },
  // The file is there as a whole at the end or not at all.
  writeLocal: async (path, content) => {
    const part = `${path}.${randomUUID()}.part`
    const out = createWriteStream(part, { highWaterMark: 1 << 20 })
    try {
      await pipeline(Readable.from(content, { objectMode: true, highWaterMark: 4 }), out)
      await rename(part, path)
    } catch (err) {
      await rm(part, { force: true })
      throw err
    }
    return out.bytesWritten
  },
}

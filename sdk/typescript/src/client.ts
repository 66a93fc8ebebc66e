// The connection to one server: settings, calls with the types of the API's
// description, and what is retried. The classes that programs use stand on it.

import { platform } from './platform/current.js'
import type { paths } from './api.gen.js'
import { ConfigurationError, ConnectionError, errorOf, RametError } from './errors.js'
import type { Fetch } from './platform/web.js'
import { FetchTransport } from './platform/web.js'
import type { ByteStream, Data, MessageStream, Transport, TransportOptions, TransportRequest, TransportResponse } from './transport.js'

export type { Fetch }

/** Which server, and how to reach it. */
export interface ClientOptions {
  /** Default: RAMET_URL; then the server of this machine, as the command line finds it. */
  url?: string
  /** Default: RAMET_API_KEY; then the server's own key, if it is this machine's and this program may read it. */
  apiKey?: string
  /** Seconds to wait for a connection; it is tried twice. Default 2.5. Where there is only fetch its own limit holds. */
  connectTimeout?: number
  /** Seconds to wait for the beginning of an answer. Default 600: calls that start machines take as long as those. */
  answerTimeout?: number
  /** Sends requests instead of this package's own way, such as through a proxy. */
  fetch?: Fetch
  /** Sent with every request. */
  headers?: Record<string, string>
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call; it rejects with the signal's reason. */
  signal?: AbortSignal
}

export type Method = 'get' | 'put' | 'post' | 'patch' | 'delete'

type Operation<P extends keyof paths, M extends Method> = M extends keyof paths[P] ? NonNullable<paths[P][M]> : never

/** The paths that have a method. */
export type PathsWith<M extends Method> = {
  [P in keyof paths]: [Operation<P, M>] extends [never] ? never : P
}[keyof paths]

type Content<R, S extends number> = S extends keyof R ? (R[S] extends { content: { 'application/json': infer J } } ? J : undefined) : never

/** The JSON of a call's answer. */
export type Answer<M extends Method, P extends PathsWith<M>> =
  Operation<P, M> extends { responses: infer R } ? Content<R, 200> | Content<R, 201> | Content<R, 204> : never

type PathIn<O> = O extends { parameters: { path: infer T } } ? { path: T } : { path?: undefined }
type QueryIn<O> = O extends { parameters: { query: infer T } } ? { query: T } : O extends { parameters: { query?: infer T } } ? { query?: NonNullable<T> } : {}
type BodyIn<O> = O extends { requestBody: { content: { 'application/json': infer J } } }
  ? { body: J }
  : O extends { requestBody?: { content: { 'application/json': infer J } } }
    ? { body?: J }
    : { body?: Data }

/** What a call takes: `path`, `query` and `body` as the API describes them. */
export type Init<M extends Method, P extends PathsWith<M>> = PathIn<Operation<P, M>> &
  QueryIn<Operation<P, M>> &
  BodyIn<Operation<P, M>> &
  CallOptions & { idempotencyKey?: string; headers?: Record<string, string>; answerTimeout?: number }

interface AnyInit extends CallOptions {
  path?: Record<string, string | number>
  query?: Record<string, unknown>
  body?: unknown
  idempotencyKey?: string
  headers?: Record<string, string>
  answerTimeout?: number
}

/** An open answer. */
export interface OpenAnswer {
  status: number
  header(name: string): string | undefined
  body: ByteStream
}

/** How long connecting waits before it is tried again after a refusal, in milliseconds. */
const pause = 100

/**
 * Calls one server with the types of its API: `client.request('get', '/v1/sandboxes/{id}', { path: { id } })`.
 * It keeps connections for the next calls.
 */
export class ApiClient {
  /** The server's address, without a slash at the end. */
  readonly url: string
  readonly #transport: Transport
  readonly #headers: Record<string, string>
  readonly #answerTimeout: number

  constructor(options: ClientOptions = {}) {
    const given = options.url ?? platform.env('RAMET_URL')
    if (given !== undefined) checkUrl(given)
    const local = options.fetch ? undefined : platform.local(given)
    this.url = (given ?? local?.url ?? 'http://127.0.0.1:7070').replace(/\/+$/, '')
    const key = options.apiKey ?? platform.env('RAMET_API_KEY') ?? local?.apiKey
    if (key !== undefined && !/^[\x21-\x7e]+$/.test(key)) {
      throw new ConfigurationError('the API key has characters that no key has', { code: 'bad_api_key', hint: 'check RAMET_API_KEY or apiKey' })
    }
    this.#headers = { ...options.headers }
    if (key !== undefined) this.#headers['authorization'] = `Bearer ${key}`
    if (platform.userAgent !== undefined) this.#headers['user-agent'] ??= platform.userAgent
    this.#answerTimeout = milliseconds('answerTimeout', options.answerTimeout ?? 600)
    const transport: TransportOptions = { base: this.url, connectTimeout: milliseconds('connectTimeout', options.connectTimeout ?? 2.5) }
    const ca = platform.env('RAMET_CA')
    if (local?.ca !== undefined) transport.ca = local.ca
    else if (ca !== undefined) transport.ca = platform.readCA(ca)
    if (local?.serverName !== undefined) transport.serverName = local.serverName
    this.#transport = options.fetch ? new FetchTransport(this.url, options.fetch) : platform.transport(transport)
  }

  /** Makes a call and reads the JSON of its answer. */
  request<M extends Method, P extends PathsWith<M>>(method: M, path: P, init?: Init<M, P>): Promise<Answer<M, P>>
  async request(method: Method, path: string, init?: unknown): Promise<unknown> {
    const answer = await this.#open(method, path, init as AnyInit | undefined)
    const text = await readText(answer.body)
    if (text.trim() === '') return undefined
    try {
      return JSON.parse(text)
    } catch (cause) {
      throw notRamet(this.url, answer.status, cause)
    }
  }

  /** Makes a call whose answer is read as it comes. */
  open<M extends Method, P extends PathsWith<M>>(method: M, path: P, init?: Init<M, P>): Promise<OpenAnswer>
  async open(method: Method, path: string, init?: unknown): Promise<OpenAnswer> {
    return this.#open(method, path, init as AnyInit | undefined)
  }

  /** Opens a WebSocket. */
  async connect<P extends PathsWith<'get'>>(path: P, init: Init<'get', P>): Promise<MessageStream> {
    const { messages } = await this.#open('get', path, init as unknown as AnyInit, true)
    if (messages) return messages
    throw notRamet(this.url, 200, undefined)
  }

  async #open(method: Method, path: string, init: AnyInit = {}, webSocket = false): Promise<TransportResponse> {
    const headers: Record<string, string> = { ...this.#headers, ...init.headers }
    const answerTimeout = init.answerTimeout === undefined ? this.#answerTimeout : milliseconds('answerTimeout', init.answerTimeout)
    const request: TransportRequest = { method: method.toUpperCase(), url: this.url + fill(path, init), headers, answerTimeout }
    if (webSocket) request.webSocket = true
    if (init.signal) request.signal = init.signal
    if (init.idempotencyKey !== undefined) headers['idempotency-key'] = init.idempotencyKey
    if (init.body !== undefined) {
      const raw = headers['content-type'] !== undefined
      request.body = raw ? (init.body as Data) : JSON.stringify(init.body)
      if (!raw) headers['content-type'] = 'application/json'
    }
    const answer = await this.#send(request, method === 'get' || (init.idempotencyKey !== undefined && typeof request.body !== 'object'))
    if ((answer.status >= 200 && answer.status < 300) || answer.messages) return answer
    throw await failure(this.url, answer)
  }

  /**
   * Sends a request. When no connection came about, nothing has happened, and it is tried once more. When one broke,
   * only what may happen twice is: a read, or a call with an idempotency key.
   */
  async #send(request: TransportRequest, repeatable: boolean): Promise<TransportResponse> {
    try {
      return await this.#transport.send(request)
    } catch (err) {
      if (!(err instanceof ConnectionError) || request.signal?.aborted) throw err
      if (err.code === 'unreachable' && !err.mayHaveRun) await sleep(pause, request.signal)
      else if (err.code !== 'connection_lost' || !repeatable) throw err
      return this.#transport.send(request)
    }
  }

  /** Closes the connections that are kept. */
  close(): void {
    this.#transport.close()
  }
}

function checkUrl(url: string): void {
  try {
    const u = new URL(url)
    if (u.protocol === 'http:' || u.protocol === 'https:') return
  } catch {
    // The same to the user.
  }
  throw new ConfigurationError(`${JSON.stringify(url)} is not the address of a server`, {
    code: 'bad_url',
    hint: 'RAMET_URL or url must be one such as https://ramet.example.com:7070',
  })
}

function milliseconds(name: string, seconds: number): number {
  // Timers take at most 31 bits.
  if (seconds > 0 && seconds <= 2_000_000) return Math.max(1, Math.round(seconds * 1000))
  throw new ConfigurationError(`${name} is ${seconds}`, { code: 'bad_timeout', hint: 'it must be a number of seconds above 0' })
}

function fill(path: string, init: AnyInit): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(init.path?.[name] ?? '')
    if (value === '' || value === '.' || value === '..') {
      throw new RametError(`the ${name} of the call is ${JSON.stringify(value)}`, { code: 'invalid_id', hint: 'give the id that the server gave' })
    }
    return encodeURIComponent(value)
  })
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(init.query ?? {})) {
    if (value === undefined) continue
    for (const v of Array.isArray(value) ? value : [value]) query.append(name, String(v))
  }
  const text = query.toString()
  return text === '' ? filled : `${filled}?${text}`
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, ms)
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}

export { sleep }

/** The longest answer that is read into memory, in bytes. */
const maxAnswer = 1 << 30

/** readBytes reads a body to its end. */
export async function readBytes(body: AsyncIterable<Uint8Array>, limit = maxAnswer): Promise<Uint8Array> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of body) {
    parts.push(part)
    size += part.byteLength
    if (size > limit) throw new RametError(`the answer has more than ${limit} bytes`, { code: 'answer_too_large', hint: 'read it as a stream' })
  }
  if (parts.length === 1 && parts[0]) return parts[0]
  const out = new Uint8Array(size)
  let at = 0
  for (const part of parts) {
    out.set(part, at)
    at += part.byteLength
  }
  return out
}

/** readText reads a body of UTF-8 to its end. */
export async function readText(body: AsyncIterable<Uint8Array>, limit = maxAnswer): Promise<string> {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await readBytes(body, limit))
}

function notRamet(url: string, status: number, cause: unknown): RametError {
  return new RametError(`${url} answered with status ${status}, and not as a Ramet server does`, {
    code: 'not_ramet',
    status,
    hint: 'see whether RAMET_URL or url is right, and what is between here and the server',
    cause,
  })
}

async function failure(url: string, answer: TransportResponse): Promise<RametError> {
  const id = answer.header('x-request-id') ?? ''
  const retry = Number(answer.header('retry-after') ?? 0) || 0
  let cause: unknown
  try {
    const text = await readText(answer.body, 64 << 10)
    const body = JSON.parse(text) as { error?: unknown; code?: unknown; request_id?: unknown } | null
    if (typeof body?.error === 'string') {
      return errorOf(answer.status, body.error, String(body.code ?? ''), String(body.request_id ?? id), retry)
    }
  } catch (err) {
    cause = err
  }
  return notRamet(url, answer.status, cause)
}

// Browsers, and other places with fetch and without Node's modules.

import { ConfigurationError, ConnectionError, TimeoutError, UnsupportedError } from '../errors.js'
import type { ByteStream, Data, Platform, Transport, TransportOptions, TransportRequest, TransportResponse } from '../transport.js'

export type Fetch = (url: string, init: RequestInit) => Promise<Response>

/** FetchTransport sends by fetch. What fetch does not tell, such as whether anything was sent, it does not know. */
export class FetchTransport implements Transport {
  readonly #base: string
  readonly #fetch: Fetch

  constructor(base: string, fetch: Fetch) {
    this.#base = base
    this.#fetch = fetch
  }

  close(): void {}

  async send(request: TransportRequest): Promise<TransportResponse> {
    if (request.webSocket) {
      throw new UnsupportedError('ports cannot be connected from here, since a WebSocket of a page can send no key', { code: 'no_web_socket', hint: 'use previewUrl' })
    }
    request.signal?.throwIfAborted()
    const stop = new AbortController()
    const onAbort = () => stop.abort(request.signal?.reason)
    request.signal?.addEventListener('abort', onAbort, { once: true })
    const release = () => request.signal?.removeEventListener('abort', onAbort)
    const init: RequestInit = { method: request.method, headers: request.headers, signal: stop.signal, credentials: 'omit', cache: 'no-store' }
    let late: TimeoutError | undefined
    let timer: ReturnType<typeof setTimeout> | undefined
    try {
      if (request.body !== undefined) init.body = (await whole(request.body)) as BodyInit
      timer = setTimeout(() => {
        late = new TimeoutError(`${this.#base} has not answered for ${request.answerTimeout / 1000} s`, {
          code: 'no_answer',
          mayHaveRun: true,
          hint: 'the call may have had its effect: look before you repeat it',
        })
        stop.abort(late)
      }, request.answerTimeout)
      const res = await this.#fetch(request.url, init)
      return {
        status: res.status,
        header: (name) => res.headers.get(name) ?? undefined,
        body: new FetchBody(res, this.#base, stop, request.signal, release),
      }
    } catch (cause) {
      release()
      if (request.signal?.aborted) throw request.signal.reason
      if (late) throw late
      if (cause instanceof TypeError) {
        throw new ConnectionError(`the call of ${this.#base} failed: ${cause.message}`, {
          code: 'unreachable',
          mayHaveRun: true,
          hint: 'see whether the server runs, whether url is right and, in a browser, whether the server allows pages of this origin (CORS)',
          cause,
        })
      }
      throw cause
    } finally {
      clearTimeout(timer)
    }
  }
}

class FetchBody implements ByteStream {
  readonly #res: Response
  readonly #base: string
  readonly #stop: AbortController
  readonly #signal: AbortSignal | undefined
  readonly #release: () => void

  constructor(res: Response, base: string, stop: AbortController, signal: AbortSignal | undefined, release: () => void) {
    this.#res = res
    this.#base = base
    this.#stop = stop
    this.#signal = signal
    this.#release = release
    if (!res.body) release()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    const reader = this.#res.body?.getReader()
    if (!reader) return
    let whole = false
    try {
      for (;;) {
        const { done, value } = await reader.read()
        if (done) {
          whole = true
          return
        }
        yield value
      }
    } catch (cause) {
      if (this.#signal?.aborted) throw this.#signal.reason
      throw new ConnectionError(`the connection to ${this.#base} was lost before the end`, {
        code: 'connection_lost',
        mayHaveRun: true,
        hint: 'the call may have had its effect: look before you repeat it',
        cause,
      })
    } finally {
      if (!whole) this.#stop.abort()
      this.#release()
    }
  }

  cancel(): void {
    this.#stop.abort()
    this.#release()
  }
}

/** whole collects a stream: fetch can send one over HTTP/2 only, and not in every browser. */
async function whole(body: Data): Promise<string | Uint8Array | ArrayBuffer | Blob> {
  if (typeof body === 'string' || body instanceof Uint8Array || body instanceof ArrayBuffer) return body
  if (typeof Blob !== 'undefined' && body instanceof Blob) return body
  if (!(Symbol.asyncIterator in body)) return new Response(body as unknown as ReadableStream<Uint8Array>).blob()
  const parts: BlobPart[] = []
  for await (const part of body as AsyncIterable<Uint8Array | string>) parts.push(part as BlobPart)
  return new Blob(parts)
}

function noFiles(instead: string): never {
  throw new UnsupportedError('there are no local files here', { code: 'no_local_files', hint: `use ${instead}` })
}

export const platform: Platform = {
  env: () => undefined,
  local: () => undefined,
  readCA: () => {
    throw new ConfigurationError('certificates cannot be chosen here', { code: 'bad_ca' })
  },
  transport: (options: TransportOptions) => new FetchTransport(options.base, (url, init) => fetch(url, init)),
  // Browsers name themselves.
  userAgent: undefined,
  randomId() {
    const b = crypto.getRandomValues(new Uint8Array(16))
    return Array.from(b, (n) => n.toString(16).padStart(2, '0')).join('')
  },
  readLocal: async () => noFiles('files.write with a Blob'),
  writeLocal: async () => noFiles("files.read with format 'stream'"),
}

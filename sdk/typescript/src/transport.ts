// What the package needs of the place where it runs. There are two: platform/node.ts
// and platform/web.ts; package.json's "exports" choose one by its entry point.

/** What can be the content of a file, or the input of a program. */
export type Data =
  | string
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array | string>

export interface TransportRequest {
  method: string
  url: string
  headers: Record<string, string>
  body?: Data
  signal?: AbortSignal
  /** Milliseconds until the head of the answer has to be there. It does not run while the body is sent. */
  answerTimeout: number
  /** Ask for a WebSocket. Not where there is only fetch. */
  webSocket?: boolean
}

/** A body that is read once. Leaving the iteration early, or cancel, ends the connection. */
export interface ByteStream extends AsyncIterable<Uint8Array> {
  cancel(): void
}

/** Messages of a WebSocket. */
export interface MessageStream extends AsyncIterable<Uint8Array> {
  send(data: Uint8Array): Promise<void>
  close(): void
}

export interface TransportResponse {
  status: number
  header(name: string): string | undefined
  body: ByteStream
  /** With status 101. */
  messages?: MessageStream
}

/** It rejects with a ConnectionError, a TimeoutError or the signal's reason. */
export interface Transport {
  send(request: TransportRequest): Promise<TransportResponse>
  close(): void
}

export interface TransportOptions {
  /** For messages. */
  base: string
  /** Milliseconds. */
  connectTimeout: number
  /** PEM. */
  ca?: string
  serverName?: string
}

/** A server of this machine that was found in its data directory. */
export interface LocalServer {
  url: string
  apiKey?: string
  ca?: string
  serverName?: string
}

export interface Platform {
  env(name: string): string | undefined
  /** The server of this machine; with a URL only if it is the one that listens there. */
  local(url: string | undefined): LocalServer | undefined
  /** The text of the file that RAMET_CA names. */
  readCA(path: string): string
  transport(options: TransportOptions): Transport
  userAgent: string | undefined
  randomId(): string
  readLocal(path: string): Promise<Data>
  writeLocal(path: string, content: AsyncIterable<Uint8Array>): Promise<number>
}

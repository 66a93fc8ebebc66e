// Ports of a sandbox.

import type { CallOptions } from './client.js'
import type { Ramet } from './ramet.js'
import type { MessageStream } from './transport.js'

/** `sandbox.ports`. */
export class Ports {
  readonly #client: Ramet
  readonly #id: string

  /** @internal */
  constructor(client: Ramet, id: string) {
    this.#client = client
    this.#id = id
  }

  /** The ports on which something listens. */
  async list(options: CallOptions = {}): Promise<number[]> {
    const { ports } = await this.#client.api.request('get', '/v1/sandboxes/{id}/ports', { path: { id: this.#id }, ...options })
    return ports
  }

  /** A TCP connection to a port, also to one that listens on the sandbox's loopback address only. Not in browsers. */
  async connect(port: number, options: CallOptions = {}): Promise<PortConnection> {
    return new PortConnection(await this.#client.api.connect('/v1/sandboxes/{id}/ports/{port}/connect', { path: { id: this.#id, port }, ...options }))
  }
}

/** How much is sent in one message, in bytes. */
const piece = 64 << 10

/** A TCP connection. Iterate over it to receive, until the other side sends no more. */
export class PortConnection implements AsyncIterable<Uint8Array>, AsyncDisposable {
  readonly #messages: MessageStream

  /** @internal */
  constructor(messages: MessageStream) {
    this.#messages = messages
  }

  /** Sends, and waits while the other side takes no more. */
  async send(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data
    for (let at = 0; at < bytes.length; at += piece) await this.#messages.send(bytes.subarray(at, at + piece))
  }

  /** Says that nothing more is sent. What the other side sends is still received. */
  async sendEof(): Promise<void> {
    await this.#messages.send(new Uint8Array())
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const message of this.#messages) {
      if (message.length === 0) return
      yield message
    }
  }

  /** Ends the connection. */
  close(): void {
    this.#messages.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }
}

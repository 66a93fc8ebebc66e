// The client's end of a WebSocket (RFC 6455) on a connection that was upgraded. Node has one of its own
// from version 22 on, which cannot send an API key.

import { createHash, randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'

import { ConnectionError, RametError } from '../errors.js'
import type { MessageStream } from '../transport.js'

/** How much is held for a reader who is slow, in bytes, before the connection stands still. */
const window = 1 << 20
/** The longest message that is taken, in bytes. */
const maxMessage = 16 << 20

const binary = 2
const closing = 8
const ping = 9
const pong = 10

export function newKey(): string {
  return randomBytes(16).toString('base64')
}

/** What a server says to a key. */
export function acceptOf(key: string): string {
  return createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
}

export class WebSocketStream implements MessageStream {
  readonly #socket: Duplex
  #buffer: Buffer
  #message: Buffer[] = []
  #queue: Uint8Array[] = []
  #held = 0
  #wake: (() => void) | undefined
  #ended = false
  #closed = false
  #error: Error | undefined

  constructor(socket: Duplex, head: Buffer) {
    this.#socket = socket
    this.#buffer = head
    socket.on('data', (data: Buffer) => {
      this.#buffer = this.#buffer.length === 0 ? data : Buffer.concat([this.#buffer, data])
      this.#parse()
    })
    socket.on('error', (err) => this.#end(err))
    socket.on('close', () => this.#end(undefined))
    this.#parse()
  }

  #parse(): void {
    for (;;) {
      const b = this.#buffer
      if (this.#ended || b.length < 2) return
      const [first, second] = [b.readUInt8(0), b.readUInt8(1)]
      let size = second & 0x7f
      let at = 2
      if (size === 126) {
        if (b.length < 4) return
        size = b.readUInt16BE(2)
        at = 4
      } else if (size === 127) {
        if (b.length < 10) return
        size = Number(b.readBigUInt64BE(2))
        at = 10
      }
      if ((first & 0x70) !== 0 || (second & 0x80) !== 0 || size > maxMessage) {
        this.#fail('the server sent what is no WebSocket message')
        return
      }
      if (b.length < at + size) return
      const payload = b.subarray(at, at + size)
      this.#buffer = b.subarray(at + size)
      this.#take(first & 0x0f, (first & 0x80) !== 0, payload)
    }
  }

  #take(opcode: number, last: boolean, payload: Buffer): void {
    switch (opcode) {
      case ping:
        this.#write(pong, payload)
        return
      case pong:
        return
      case closing: {
        const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005
        const reason = payload.subarray(2).toString()
        if (!this.#closed) this.#write(closing, payload.subarray(0, 2))
        this.#closed = true
        this.#shut()
        if (code === 1000 || code === 1001) this.#end(undefined, true)
        else this.#end(new ConnectionError(`the connection to the port broke: ${reason || code}`, { code: reason || 'connection_lost', mayHaveRun: true }))
        return
      }
    }
    this.#message.push(payload)
    this.#held += payload.length
    if (this.#message.reduce((n, part) => n + part.length, 0) > maxMessage) {
      this.#fail('the server sent a message that is too long')
      return
    }
    if (last) {
      this.#queue.push(this.#message.length === 1 && this.#message[0] ? this.#message[0] : Buffer.concat(this.#message))
      this.#message = []
      this.#wake?.()
    }
    if (this.#held > window && this.#queue.length > 0) this.#socket.pause()
  }

  #fail(message: string): void {
    this.#end(new RametError(message, { code: 'bad_stream' }))
    this.#socket.destroy()
  }

  #end(cause: Error | undefined, well = this.#closed): void {
    if (this.#ended) return
    this.#ended = true
    if (cause instanceof RametError) this.#error = cause
    else if (!well) this.#error = new ConnectionError('the connection to the port was lost', { code: 'connection_lost', mayHaveRun: true, cause })
    this.#wake?.()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const next = this.#queue.shift()
      if (next !== undefined) {
        this.#held -= next.length
        if (this.#held <= window || this.#queue.length === 0) this.#socket.resume()
        yield next
      } else if (this.#ended) {
        if (this.#error) throw this.#error
        return
      } else {
        await new Promise<void>((resolve) => (this.#wake = resolve))
        this.#wake = undefined
      }
    }
  }

  /** Sends a message, and waits while the server takes no more. */
  async send(data: Uint8Array): Promise<void> {
    if (this.#ended || this.#closed) throw this.#error ?? new ConnectionError('the connection to the port is closed', { code: 'closed', mayHaveRun: false })
    if (this.#write(binary, data)) return
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#socket.off('drain', done).off('close', done)
        resolve()
      }
      this.#socket.on('drain', done).on('close', done)
    })
  }

  #write(opcode: number, data: Uint8Array): boolean {
    const long = data.length > 0xffff ? 8 : data.length > 125 ? 2 : 0
    const frame = Buffer.alloc(2 + long + 4 + data.length)
    frame[0] = 0x80 | opcode
    if (long === 0) frame[1] = 0x80 | data.length
    else if (long === 2) frame.writeUInt16BE(data.length, ((frame[1] = 0x80 | 126), 2))
    else frame.writeBigUInt64BE(BigInt(data.length), ((frame[1] = 0x80 | 127), 2))
    const mask = randomBytes(4)
    mask.copy(frame, 2 + long)
    const at = 6 + long
    for (let i = 0; i < data.length; i++) frame[at + i] = (data[i] as number) ^ (mask[i & 3] as number)
    return this.#socket.write(frame)
  }

  /** Says good-bye: what was sent arrives, what comes is not read any more. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    if (!this.#ended) this.#write(closing, Buffer.from([0x03, 0xe8]))
    this.#end(undefined, true)
    this.#shut()
  }

  /** Ends the connection; a server that does not must not hold the program. */
  #shut(): void {
    this.#socket.end()
    this.#socket.resume()
    setTimeout(() => this.#socket.destroy(), 1000).unref()
  }
}

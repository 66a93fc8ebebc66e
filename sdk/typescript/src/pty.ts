// Terminals.

import type { ApiClient, CallOptions } from './client.js'
import type { Signal } from './commands.js'
import { findProcess, follow, noProcess, processId, ProcessHandle, sendInput, sendSignal, startDetached } from './commands.js'
import type { Callback, Exit, Started } from './execution.js'
import type { CommandEvent } from './commands.js'
import type { Data } from './transport.js'

export interface PtyOptions extends CallOptions {
  /** A program and its arguments, or a string for bash. Default: a login shell. */
  command?: string | readonly string[]
  /** Default 80. */
  columns?: number
  /** Default 24. */
  rows?: number
  env?: Record<string, string>
  cwd?: string
  /** Default `root`. */
  user?: string
  /** Seconds after which it is interrupted. Default: never. */
  timeout?: number
  /** A name of your own, shown by commands.list(). */
  tag?: string
  /** Called with what the terminal shows. */
  onData?: Callback<Uint8Array>
  idempotencyKey?: string
}

/** A terminal. It goes on when this program ends; kill ends it. */
export class PtyHandle extends ProcessHandle implements AsyncIterable<Uint8Array> {
  readonly #stop = new AbortController()
  #reading: Promise<Exit> | undefined

  /** Types into it. */
  async sendInput(data: Data, options: CallOptions = {}): Promise<void> {
    await this.write(data, false, options)
  }

  /** Tells it how large the window is now. */
  async resize(columns: number, rows: number, options: CallOptions = {}): Promise<void> {
    await resize(this.api, this.sandbox, this.id, columns, rows, options)
  }

  /** Waits until its program ends. */
  wait(): Promise<Exit> {
    return this.read(undefined)
  }

  /** Yields what it shows. It goes on when the iteration is left. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const event of this.#events()) if (event.type === 'stdout') yield event.bytes
  }

  /** Ends the connection: a wait, and what calls onData. The terminal goes on. */
  disconnect(): void {
    this.#stop.abort(new DOMException('the terminal was disconnected', 'AbortError'))
  }

  /** @internal Reads in the background. */
  read(onData: Callback<Uint8Array> | undefined): Promise<Exit> {
    this.#reading ??= this.#drain(onData)
    return this.#reading
  }

  async #drain(onData: Callback<Uint8Array> | undefined): Promise<Exit> {
    let exit: Exit = { type: 'exit', code: 0 }
    for await (const event of this.#events()) {
      if (event.type === 'stdout') await onData?.(event.bytes)
      else if (event.type === 'exit') exit = event
    }
    return exit
  }

  #events(): AsyncGenerator<CommandEvent | Started, void, undefined> {
    return follow(this.api, this.sandbox, this.id, this.position, this.#stop.signal)
  }
}

/** Terminals: `sandbox.pty`. */
export class Pty {
  readonly #api: ApiClient
  readonly #id: string

  /** @internal */
  constructor(api: ApiClient, id: string) {
    this.#api = api
    this.#id = id
  }

  /** Starts a terminal. */
  async create(options: PtyOptions = {}): Promise<PtyHandle> {
    const { command, columns = 80, rows = 24, onData } = options
    const argv = command === undefined ? ['bash', '-l'] : typeof command === 'string' ? ['bash', '-c', command] : [...command]
    const { id, pid, next, body } = await startDetached(this.#api, this.#id, options, {
      argv,
      pty: { columns, rows },
      env: options.env,
      cwd: options.cwd,
      user: options.user,
      timeout_s: options.timeout,
      tag: options.tag,
    })
    body.cancel()
    return this.#handle(id, pid, next, onData)
  }

  /** A terminal that was started elsewhere: what it shows from now on, or from the event `fromSeq` on. */
  async connect(process: string | number, options: CallOptions & { onData?: Callback<Uint8Array>; fromSeq?: number } = {}): Promise<PtyHandle> {
    const { onData, fromSeq = 'latest', ...rest } = options
    const info = await findProcess(this.#api, this.#id, process, rest)
    return this.#handle(info.process, info.pid, fromSeq, onData)
  }

  #handle(id: string, pid: number, next: number | 'latest', onData: Callback<Uint8Array> | undefined): PtyHandle {
    const handle = new PtyHandle(this.#api, this.#id, id, pid, next)
    // Whoever wants to know how it ended asks with wait, which is the same promise.
    if (onData) handle.read(onData).catch(() => {})
    return handle
  }

  /** Ends a terminal with all that runs in it, or sends it another signal; says whether it was there. */
  async kill(process: string | number, signal: Signal = 'SIGKILL', options: CallOptions = {}): Promise<boolean> {
    const name = await processId(this.#api, this.#id, process, options)
    return name !== undefined && sendSignal(this.#api, this.#id, name, signal, options)
  }

  async resize(process: string | number, columns: number, rows: number, options: CallOptions = {}): Promise<void> {
    await resize(this.#api, this.#id, await this.#name(process, options), columns, rows, options)
  }

  async sendInput(process: string | number, data: Data, options: CallOptions = {}): Promise<void> {
    await sendInput(this.#api, this.#id, await this.#name(process, options), data, false, options)
  }

  async #name(process: string | number, options: CallOptions): Promise<string> {
    const name = await processId(this.#api, this.#id, process, options)
    if (name === undefined) throw noProcess(process)
    return name
  }
}

async function resize(api: ApiClient, id: string, process: string, columns: number, rows: number, options: CallOptions): Promise<void> {
  await api.request('post', '/v1/sandboxes/{id}/processes/{process}/resize', { path: { id, process }, body: { columns, rows }, ...options })
}

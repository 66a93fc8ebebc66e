// What code gives back: events as they come, and all of them together.

import type { components } from './api.gen.js'
import type { OpenAnswer } from './client.js'
import { fromBase64, known } from './convert.js'
import { CodeError, ConnectionError, streamErrorOf } from './errors.js'
import { afterLast, ndjson, silence } from './lines.js'

type RawEvent = components['schemas']['Event']

/** Output. Text is never cut inside a character. */
class Output {
  readonly text: string
  readonly #exact: string | undefined

  constructor(text: string, exact?: string) {
    this.text = text
    this.#exact = exact
  }

  /** The exact bytes, also of output that is not UTF-8. */
  get bytes(): Uint8Array {
    return this.#exact === undefined ? new TextEncoder().encode(this.text) : fromBase64(this.#exact)
  }
}

export class Stdout extends Output {
  readonly type = 'stdout'
}

export class Stderr extends Output {
  readonly type = 'stderr'
}

/** A value, or something displayed, in all its forms. */
export class Result {
  readonly type = 'result'
  /** Everything by MIME type: text, or base64 for binary types. */
  readonly raw: Readonly<Record<string, string>>
  /** The value of the last expression, and not something displayed on the way. */
  readonly isMainResult: boolean

  constructor(raw: Record<string, string>, isMainResult: boolean) {
    this.raw = raw
    this.isMainResult = isMainResult
  }

  get text(): string | undefined {
    return this.raw['text/plain']
  }
  get html(): string | undefined {
    return this.raw['text/html']
  }
  get markdown(): string | undefined {
    return this.raw['text/markdown']
  }
  get svg(): string | undefined {
    return this.raw['image/svg+xml']
  }
  get latex(): string | undefined {
    return this.raw['text/latex']
  }
  get javascript(): string | undefined {
    return this.raw['application/javascript']
  }
  /** Base64. */
  get png(): string | undefined {
    return this.raw['image/png']
  }
  /** Base64. */
  get jpeg(): string | undefined {
    return this.raw['image/jpeg']
  }
  /** Base64. */
  get pdf(): string | undefined {
    return this.raw['application/pdf']
  }
  get json(): unknown {
    return this.#parsed('application/json')
  }
  /** The data behind a chart. */
  get chart(): Chart | undefined {
    return this.#parsed('application/vnd.ramet.chart+json') as Chart | undefined
  }
  /** A DataFrame: its columns. */
  get data(): Record<string, unknown[]> | undefined {
    return this.#parsed('application/vnd.ramet.data+json') as Record<string, unknown[]> | undefined
  }

  /** The MIME types that there are. */
  formats(): string[] {
    return Object.keys(this.raw)
  }

  /** The bytes of one of its forms. */
  toBytes(mime: string): Uint8Array | undefined {
    const value = this.raw[mime]
    if (value === undefined) return undefined
    const binary = /^(image|audio|video)\//.test(mime) ? mime !== 'image/svg+xml' : mime === 'application/pdf'
    return binary ? fromBase64(value.replace(/\s+/g, '')) : new TextEncoder().encode(value)
  }

  #parsed(mime: string): unknown {
    const value = this.raw[mime]
    if (value === undefined) return undefined
    try {
      return JSON.parse(value)
    } catch {
      return undefined // what the guest sent is no JSON; raw has it
    }
  }

  toString(): string {
    return this.text ?? `Result(${this.formats().join(', ')})`
  }

  toJSON(): unknown {
    return { raw: this.raw, isMainResult: this.isMainResult }
  }
}

/** A chart that was drawn, as data. */
export interface Chart {
  type: string
  title?: string | null
  elements?: unknown[]
  [key: string]: unknown
}

/** An uncaught exception. It is data, not thrown. */
export class ExecutionError {
  readonly type = 'error'
  readonly name: string
  readonly value: string
  readonly traceback: string
  constructor(name: string, value: string, traceback: string) {
    this.name = name
    this.value = value
    this.traceback = traceback
  }
  toString(): string {
    return this.value ? `${this.name}: ${this.value}` : this.name
  }
}

/** The beginning. */
export interface Started {
  readonly type: 'started'
  /** Names the run, for commands.kill: SIGINT interrupts it. */
  readonly runId: string
  /** As the sandbox's kernel counts. */
  readonly pid: number
}

/** Output that was dropped, because it was more than the sandbox keeps. */
export interface Truncated {
  readonly type: 'truncated'
  readonly bytes: number
}

/** Why something ended that did not end by itself. */
export type ExitReason = 'signaled' | 'timeout' | 'interrupted' | 'interpreter_died' | 'out_of_memory' | 'start_failed' | (string & {})

/** The end. */
export interface Exit {
  readonly type: 'exit'
  readonly code: number
  /** Absent when it ended by itself. */
  readonly reason?: ExitReason
  readonly signal?: number
  /** One sentence, with a reason. */
  readonly message?: string
  readonly durationMs?: number
}

export type ExecutionEvent = Started | Stdout | Stderr | Result | ExecutionError | Truncated | Exit


/** @internal */
export interface Numbered {
  readonly seq: number
  readonly event: ExecutionEvent
}

function parse(e: RawEvent): ExecutionEvent | undefined {
  switch (e.type) {
    case 'started':
      return { type: 'started', runId: e.process ?? '', pid: Number(e.data) }
    case 'stdout':
      return new Stdout(String(e.data), e.data_b64)
    case 'stderr':
      return new Stderr(String(e.data), e.data_b64)
    case 'result':
      return new Result((e.data ?? {}) as Record<string, string>, e.main ?? false)
    case 'error':
      return new ExecutionError(e.name ?? '', e.value ?? '', e.traceback ?? '')
    case 'truncated':
      return { type: 'truncated', bytes: Number(e.data) }
    case 'exit': {
      const exit: { -readonly [K in keyof Exit]: Exit[K] } = { type: 'exit', code: Number(e.data) }
      if (e.reason !== undefined) exit.reason = e.reason
      if (e.signal !== undefined) exit.signal = e.signal
      if (e.message !== undefined) exit.message = e.message
      if (e.duration_ms !== undefined) exit.durationMs = e.duration_ms
      return exit
    }
  }
  return undefined // a type of a newer server
}

/**
 * @internal Yields the events of a run, of which the last is its exit. Leaving early ends the connection: what is
 * not detached is interrupted then.
 */
export async function* runEvents(answer: OpenAnswer): AsyncGenerator<Numbered, void, undefined> {
  const lines = ndjson<RawEvent>(answer.body, silence)
  let over = false
  try {
    for (;;) {
      const step = await lines.next()
      if (step.done) {
        throw new ConnectionError('the stream ended before what it follows', {
          code: 'connection_lost',
          mayHaveRun: true,
          hint: 'what runs detached goes on: follow it again with commands.connect(process)',
        })
      }
      const raw = step.value
      if (raw.type === 'stream_error') {
        over = true
        afterLast(lines, answer.body)
        throw streamErrorOf(String(raw.data), raw.code ?? '', answer.header('x-request-id') ?? '')
      }
      const event = parse(raw)
      if (!event) continue
      if (event.type === 'exit') {
        over = true
        afterLast(lines, answer.body)
      }
      yield { seq: raw.seq, event }
      if (over) return
    }
  } finally {
    if (!over) {
      answer.body.cancel()
      await lines.return()
    }
  }
}

/** Called with what comes; the next event waits for a promise that it returns. */
export type Callback<T> = (value: T) => void | Promise<void>

/** What both code and commands tell as they go. */
export interface OutputCallbacks {
  onStdout?: Callback<string>
  onStderr?: Callback<string>
}

export interface ExecutionCallbacks extends OutputCallbacks {
  onResult?: Callback<Result>
  onError?: Callback<ExecutionError>
}

/** What Node's console asks for an object's contents. */
const inspect = Symbol.for('nodejs.util.inspect.custom')

/** What is common to the outcome of code and of commands. */
export abstract class Outcome {
  #stdout: string[] = []
  #stderr: string[] = []
  #exit: Exit = { type: 'exit', code: 0 }
  #truncated = 0

  /** @internal */
  async add(event: ExecutionEvent, on: OutputCallbacks): Promise<void> {
    switch (event.type) {
      case 'stdout':
        this.#stdout.push(event.text)
        await on.onStdout?.(event.text)
        break
      case 'stderr':
        this.#stderr.push(event.text)
        await on.onStderr?.(event.text)
        break
      case 'truncated':
        this.#truncated += event.bytes
        break
      case 'exit':
        this.#exit = event
        break
    }
  }

  get stdout(): string {
    if (this.#stdout.length > 1) this.#stdout = [this.#stdout.join('')]
    return this.#stdout[0] ?? ''
  }
  get stderr(): string {
    if (this.#stderr.length > 1) this.#stderr = [this.#stderr.join('')]
    return this.#stderr[0] ?? ''
  }
  /** 128 plus the signal, when one ended it. */
  get exitCode(): number {
    return this.#exit.code
  }
  /** Why it ended, when it did not end by itself. */
  get reason(): ExitReason | undefined {
    return this.#exit.reason
  }
  get signal(): number | undefined {
    return this.#exit.signal
  }
  /** One sentence, with a reason. */
  get message(): string | undefined {
    return this.#exit.message
  }
  /** How long it ran, by the sandbox's clock. */
  get durationMs(): number {
    return this.#exit.durationMs ?? 0
  }
  /** How many bytes of output were dropped. */
  get truncatedBytes(): number {
    return this.#truncated
  }

  /** Everything, as plain data. */
  toJSON(): Record<string, unknown> {
    const { stdout, stderr, exitCode, reason, signal, message, durationMs, truncatedBytes } = this
    return known({ stdout, stderr, exitCode, reason, signal, message, durationMs, truncatedBytes })
  }

  /** @internal */
  [inspect](): unknown {
    return this.toJSON()
  }
}

/** What code has done. */
export class Execution extends Outcome {
  /** Names the run while it goes on. */
  readonly runId: string
  /** The value of the last expression, and what was displayed on the way. */
  readonly results: Result[] = []
  #error: ExecutionError | undefined

  /** @internal */
  constructor(runId: string) {
    super()
    this.runId = runId
  }

  /** @internal */
  async take(event: ExecutionEvent, on: ExecutionCallbacks): Promise<void> {
    if (event.type === 'result') {
      this.results.push(event)
      await on.onResult?.(event)
    } else if (event.type === 'error') {
      this.#error = event
      await on.onError?.(event)
    } else {
      await this.add(event, on)
    }
  }

  /** The text of the last expression's value. */
  get text(): string | undefined {
    return this.results.find((r) => r.isMainResult)?.text
  }
  /** The uncaught exception, if there was one. */
  get error(): ExecutionError | undefined {
    return this.#error
  }
  /** Whether it ended well. */
  get ok(): boolean {
    return this.exitCode === 0 && this.#error === undefined && this.reason === undefined
  }

  /** Returns this when it ended well, and throws a CodeError otherwise. */
  check(): this {
    if (this.ok) return this
    throw new CodeError(`the code failed: ${this.#error?.toString() ?? this.message ?? `exit code ${this.exitCode}`}`, this)
  }

  override toJSON(): Record<string, unknown> {
    return known({ text: this.text, results: this.results, error: this.#error, ...super.toJSON(), runId: this.runId })
  }
}

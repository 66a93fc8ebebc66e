// Programs in a sandbox, in the foreground and in the background.

import type { components } from './api.gen.js'
import type { ApiClient, CallOptions, OpenAnswer } from './client.js'
import { sleep } from './client.js'
import { known, model } from './convert.js'
import { CommandError, ConflictError, ConnectionError, NotFoundError, RametError, TimeoutError } from './errors.js'
import type { Exit, OutputCallbacks, Started, Stderr, Stdout, Truncated } from './execution.js'
import { Outcome, runEvents } from './execution.js'
import type { ProcessInfo } from './models.gen.js'
import { platform } from './platform/current.js'
import type { Data } from './transport.js'

/** The name of a signal, such as `SIGTERM`, or its number. */
export type Signal = string | number

export interface CommandOptions extends OutputCallbacks, CallOptions {
  env?: Record<string, string>
  /** Default: the user's home. */
  cwd?: string
  /** Default `root`. */
  user?: string
  /** Seconds after which it is interrupted. Default: never. */
  timeout?: number
  /** What it reads from its standard input. Default: nothing. */
  input?: Data
  /** Throw a CommandError when it fails. Default false. */
  check?: boolean
  background?: false
}

export interface BackgroundOptions extends CallOptions {
  /** Start it and return: it goes on when this program ends. */
  background: true
  env?: Record<string, string>
  cwd?: string
  user?: string
  timeout?: number
  /** Keep its standard input open for sendStdin. Default false. */
  stdin?: boolean
  /** A name of your own, shown by list(). */
  tag?: string
  /** The same key makes the same call once. Default: one is made up. */
  idempotencyKey?: string
}

/** What a command has done. */
export class CommandResult extends Outcome {
  /** The id of the process. */
  readonly id: string

  /** @internal */
  constructor(id: string) {
    super()
    this.id = id
  }

  /** Whether it ended with 0. */
  get ok(): boolean {
    return this.exitCode === 0 && this.reason === undefined
  }

  /** Returns this when it ended with 0, and throws a CommandError otherwise. */
  check(): this {
    if (this.ok) return this
    const last = this.stderr.trimEnd().split('\n').pop()
    throw new CommandError(`the command failed: ${this.message ?? `exit code ${this.exitCode}`}${last ? `: ${last}` : ''}`, this)
  }

  override toJSON(): Record<string, unknown> {
    return { id: this.id, ...super.toJSON() }
  }
}

export type CommandEvent = Stdout | Stderr | Truncated | Exit

/** @internal How far a process was read: what comes next, and its end once that was seen. */
export interface Position {
  next: number | 'latest'
  exit?: Exit
}

/** @internal Yields the events of a process from one on, over breaks of the connection. Its end is told each time. */
export async function* follow(
  api: ApiClient,
  sandbox: string,
  process: string,
  position: Position,
  signal: AbortSignal | undefined,
): AsyncGenerator<CommandEvent | Started, void, undefined> {
  if (position.exit) {
    yield position.exit
    return
  }
  for (let breaks = 0; ; ) {
    try {
      const answer = await api.open('get', '/v1/sandboxes/{id}/processes/{process}/stream', {
        path: { id: sandbox, process },
        query: position.next === 'latest' ? { latest: true } : { from_seq: position.next },
        ...(signal ? { signal } : {}),
      })
      for await (const { seq, event } of runEvents(answer)) {
        breaks = 0
        // An error has the number of the exit behind it.
        position.next = event.type === 'error' ? seq : seq + 1
        if (event.type === 'exit') position.exit = event
        if (event.type !== 'result' && event.type !== 'error') yield event
      }
      return
    } catch (err) {
      const lost = err instanceof ConnectionError && !(err instanceof TimeoutError) && err.code === 'connection_lost'
      if (!lost || breaks++ > 0 || signal?.aborted) throw err
      await sleep(100, signal)
    }
  }
}

/** What handles of background commands and of terminals have in common. */
export class ProcessHandle {
  /** Names it, for connect() too. */
  readonly id: string
  /** As the sandbox's kernel counts. */
  readonly pid: number
  /** @internal */
  protected readonly api: ApiClient
  /** @internal */
  protected readonly sandbox: string
  /** @internal */
  protected readonly position: Position
  #input: Promise<unknown> = Promise.resolve()

  /** @internal */
  constructor(api: ApiClient, sandbox: string, id: string, pid: number, next: number | 'latest') {
    this.api = api
    this.sandbox = sandbox
    this.id = id
    this.pid = pid
    this.position = { next }
  }

  /** Sends a signal to its process group, and says whether it was there. */
  kill(signal: Signal = 'SIGKILL', options: CallOptions = {}): Promise<boolean> {
    return sendSignal(this.api, this.sandbox, this.id, signal, options)
  }

  /** @internal Writes in the order of the calls, each after the one before has ended. */
  protected write(data: Data, eof: boolean, options: CallOptions): Promise<number> {
    const sent = this.#input.then(() => sendInput(this.api, this.sandbox, this.id, data, eof, options))
    this.#input = sent.catch(() => {})
    return sent
  }
}

/** @internal Says whether the process was there. */
export async function sendSignal(api: ApiClient, id: string, process: string, signal: Signal, options: CallOptions): Promise<boolean> {
  try {
    await api.request('post', '/v1/sandboxes/{id}/processes/{process}/signal', { path: { id, process }, body: { signal }, ...options })
    return true
  } catch (err) {
    // It has ended, or that is so long ago that it is forgotten; a sandbox that is gone is another matter.
    if (err instanceof NotFoundError && !err.code.startsWith('sandbox_')) return false
    if (err instanceof ConflictError && (err.code === 'failed_precondition' || err.code === 'process_ended')) return false
    throw err
  }
}

/** In seconds; timers take no more. */
const forever = 2_000_000

/** @internal */
export async function sendInput(api: ApiClient, id: string, process: string, data: Data, eof: boolean, options: CallOptions): Promise<number> {
  const { bytes } = await api.request('post', '/v1/sandboxes/{id}/processes/{process}/stdin', {
    path: { id, process },
    query: { eof },
    body: data,
    headers: { 'content-type': 'application/octet-stream' },
    // A program reads when it likes.
    answerTimeout: forever,
    ...options,
  })
  return bytes
}

/** A command that runs in the background, or one that was found by connect(). */
export class CommandHandle extends ProcessHandle implements AsyncIterable<CommandEvent> {
  /** Waits until it ends. What it printed before is part of the result, unless it was read already. */
  async wait(options: OutputCallbacks & CallOptions & { check?: boolean } = {}): Promise<CommandResult> {
    const result = new CommandResult(this.id)
    for await (const event of this.#events(options.signal)) await result.add(event, options)
    return options.check ? result.check() : result
  }

  /** Yields what it prints, and its end. It goes on when the iteration is left. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CommandEvent, void, undefined> {
    for await (const event of this.#events(undefined)) if (event.type !== 'started') yield event
  }

  #events(signal: AbortSignal | undefined): AsyncGenerator<CommandEvent | Started, void, undefined> {
    return follow(this.api, this.sandbox, this.id, this.position, signal)
  }

  /** Writes to its standard input, which it must have been started with; returns how many bytes. */
  sendStdin(data: Data, options: CallOptions & { eof?: boolean } = {}): Promise<number> {
    const { eof = false, ...rest } = options
    return this.write(data, eof, rest)
  }

  /** Ends its standard input. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.write('', true, options)
  }
}

/** Programs: `sandbox.commands`. */
export class Commands {
  readonly #api: ApiClient
  readonly #id: string

  /** @internal */
  constructor(api: ApiClient, id: string) {
    this.#api = api
    this.#id = id
  }

  /**
   * Runs a command and waits for it. A string is run by bash; a list is a program and its arguments. A command that
   * fails is a result, unless `check` is set. With `background` it returns once it has started.
   */
  run(command: string | readonly string[], options: BackgroundOptions): Promise<CommandHandle>
  run(command: string | readonly string[], options?: CommandOptions): Promise<CommandResult>
  async run(command: string | readonly string[], options: CommandOptions | BackgroundOptions = {}): Promise<CommandResult | CommandHandle> {
    const argv = typeof command === 'string' ? ['bash', '-c', command] : [...command]
    if (options.background) return this.#start(argv, options)
    const { input, signal } = options
    const rest = signal ? { signal } : {}
    const answer = await this.#api.open('post', '/v1/sandboxes/{id}/processes', {
      path: { id: this.#id },
      body: known({ argv, env: options.env, cwd: options.cwd, user: options.user, timeout_s: options.timeout, stdin: input === undefined ? undefined : true }),
      ...rest,
    })
    const result = new CommandResult(answer.header('x-run-id') ?? '')
    let written: Promise<unknown> | undefined
    let failure: { cause: unknown } | undefined
    try {
      for await (const { event } of runEvents(answer)) {
        if (input !== undefined && event.type === 'started') {
          // A command that does not read all of it has that right; any other failure ends it.
          written = sendInput(this.#api, this.#id, event.runId, input, true, rest).catch((cause: unknown) => {
            if (cause instanceof ConflictError || cause instanceof NotFoundError) return
            failure = { cause }
            answer.body.cancel()
          })
        }
        await result.add(event, options)
      }
      await written
    } catch (err) {
      throw failure ? failure.cause : err
    }
    if (failure) throw (failure as { cause: unknown }).cause
    return options.check ? result.check() : result
  }

  async #start(argv: string[], options: BackgroundOptions): Promise<CommandHandle> {
    const { id, pid, next, body } = await startDetached(this.#api, this.#id, options, {
      argv,
      env: options.env,
      cwd: options.cwd,
      user: options.user,
      timeout_s: options.timeout,
      stdin: options.stdin,
      tag: options.tag,
    })
    // Nobody reads yet, and an open stream would keep the sandbox from its idle timeout.
    body.cancel()
    return new CommandHandle(this.#api, this.#id, id, pid, next)
  }

  /** Everything that runs, and commands of the background that have ended. */
  async list(options: CallOptions = {}): Promise<ProcessInfo[]> {
    const { processes } = await this.#api.request('get', '/v1/sandboxes/{id}/processes', { path: { id: this.#id }, ...options })
    return model<ProcessInfo[]>(processes)
  }

  /** A command that was started elsewhere, by its id or pid. What it has printed comes again, from the event `fromSeq` on. */
  async connect(process: string | number, options: CallOptions & { fromSeq?: number } = {}): Promise<CommandHandle> {
    const { fromSeq = 0, ...rest } = options
    const info = await findProcess(this.#api, this.#id, process, rest)
    return new CommandHandle(this.#api, this.#id, info.process, info.pid, fromSeq)
  }

  /** Sends a signal to a process group, and says whether it was there. */
  async kill(process: string | number, signal: Signal = 'SIGKILL', options: CallOptions = {}): Promise<boolean> {
    const name = await processId(this.#api, this.#id, process, options)
    return name !== undefined && sendSignal(this.#api, this.#id, name, signal, options)
  }

  /** Writes to the standard input of a command that was started with one; returns how many bytes. */
  async sendStdin(process: string | number, data: Data, options: CallOptions & { eof?: boolean } = {}): Promise<number> {
    const { eof = false, ...rest } = options
    const name = await processId(this.#api, this.#id, process, rest)
    if (name === undefined) throw noProcess(process)
    return sendInput(this.#api, this.#id, name, data, eof, rest)
  }
}

type Loose<T> = { [K in keyof T]: T[K] | undefined }
type Program = Omit<components['schemas']['ProcessStart'], 'detach'>

/** @internal Starts a program that outlives the call, and reads its first event. */
export async function startDetached(
  api: ApiClient,
  sandbox: string,
  options: CallOptions & { idempotencyKey?: string },
  program: Loose<Program>,
): Promise<{ id: string; pid: number; next: number; body: OpenAnswer['body']; events: ReturnType<typeof runEvents> }> {
  const answer = await api.open('post', '/v1/sandboxes/{id}/processes', {
    path: { id: sandbox },
    body: known({ ...program, detach: true }) as Program,
    idempotencyKey: options.idempotencyKey ?? platform.randomId(),
    ...(options.signal ? { signal: options.signal } : {}),
  })
  const events = runEvents(answer)
  const first = await events.next()
  if (first.done || first.value.event.type !== 'started') {
    await events.return()
    const event = first.done ? undefined : first.value.event
    const why = event?.type === 'exit' ? event.message : undefined
    throw new RametError(`the program could not be started${why ? `: ${why}` : ''}`, { code: 'start_failed' })
  }
  const { runId, pid } = first.value.event
  return { id: runId, pid, next: first.value.seq + 1, body: answer.body, events }
}

/** @internal */
export async function findProcess(api: ApiClient, id: string, process: string | number, options: CallOptions): Promise<ProcessInfo> {
  const { processes } = await api.request('get', '/v1/sandboxes/{id}/processes', { path: { id }, ...options })
  const found = model<ProcessInfo[]>(processes).find((p) => (typeof process === 'string' ? p.process === process : p.pid === process && p.running))
  if (found) return found
  throw noProcess(process)
}

/** @internal The id of a process that is named by its id or pid; undefined when none has that pid. */
export async function processId(api: ApiClient, id: string, process: string | number, options: CallOptions): Promise<string | undefined> {
  if (typeof process === 'string') return process
  try {
    return (await findProcess(api, id, process, options)).process
  } catch (err) {
    if (err instanceof NotFoundError && err.code === 'process_not_found') return undefined
    throw err
  }
}

/** @internal */
export function noProcess(process: string | number): NotFoundError {
  return new NotFoundError(`there is no process ${process}`, { code: 'process_not_found', hint: 'commands.list() shows those that there are' })
}

// The sandbox, as programs use it. Start reading here.

import './dispose.js'
import { platform } from './platform/current.js'
import type { CallOptions } from './client.js'
import { Commands } from './commands.js'
import type { ContextRef } from './contexts.js'
import { contextId, Contexts } from './contexts.js'
import { known, model } from './convert.js'
import { NotFoundError } from './errors.js'
import { events, type EventOptions } from './events.js'
import type { ExecutionCallbacks, ExecutionEvent } from './execution.js'
import { Execution, runEvents } from './execution.js'
import { Files } from './files.js'
import type { Diff, EgressPolicy, Lineage, Metrics, SandboxEvent, SandboxInfo } from './models.gen.js'
import { Ports } from './ports.js'
import { Pty } from './pty.js'
import { Ramet } from './ramet.js'
import { Checkpoints, type CheckpointRef, checkpointId, pages, pageSize } from './state.js'

/** Which client a call uses. Default: one for this program, with RAMET_URL and RAMET_API_KEY. */
export interface ClientOption {
  client?: Ramet
}

export type Isolation = 'kvm' | 'gvisor' | 'emulated'

export type AtEnd = 'delete' | 'hibernate' | 'hibernate_disk'

export interface CreateOptions extends ClientOption, CallOptions {
  /** Default `default`. */
  template?: string
  /** Environment of everything that runs in it. */
  env?: Record<string, string>
  /** Anything to find it by. */
  metadata?: Record<string, string>
  /** MiB of memory, 512 to 16384 in steps of 128. Default 1024. */
  memoryMb?: number
  /** 1, 2, 4 or 8. Default 2. */
  vcpus?: number
  /** MiB of disk, 4096 to 65536. Default 4096. */
  diskMb?: number
  /** Whether it reaches the internet. Default true. */
  egress?: boolean
  /** What of it. */
  egressPolicy?: EgressPolicy
  /** Seconds without a call after which it hibernates. 0 is never. Default: the server's setting. */
  idleTimeout?: number
  /** Seconds after which it is stopped for good. 0 is never. Default: never. */
  maxLifetime?: number
  /** Seconds for which it runs until its deadline, which updates move and calls do not. 0 is none. Default: none. */
  endsIn?: number
  /** What becomes of it at its deadline: it is deleted (the default), or it hibernates, with its memory or without. */
  atEnd?: AtEnd
  /** Whether it becomes a Space when it is idle, instead of hibernating. */
  persistent?: boolean
  /** What it must be isolated by. A server that gives another one refuses it, with the code `isolation_unavailable`. Default: no matter what. */
  isolation?: Isolation
  /** A checkpoint to start from, instead of a template. */
  checkpoint?: CheckpointRef
  /** Only with `checkpoint`: whether `random` and numpy get new seeds. Default true. */
  reseed?: boolean
  /** The same key makes one sandbox, however often the call is made. Default: one is made up. */
  idempotencyKey?: string
}

export interface ListOptions extends ClientOption, CallOptions {
  /** Only this status. `any` also shows stopped ones. */
  status?: string
  template?: string
  /** Only those whose metadata has all of these. */
  metadata?: Record<string, string>
  /** At most so many. Default: all. */
  limit?: number
}

export interface UpdateOptions {
  idleTimeout?: number
  maxLifetime?: number
  /** Moves the deadline to so many seconds from now; 0 takes it away. */
  endsIn?: number
  atEnd?: AtEnd
  metadata?: Record<string, string | null>
}

export interface RunOptions extends CallOptions {
  /** `python` (default), `javascript` or `bash`, as far as the template has it. */
  language?: string
  /** An interpreter of its own, instead of the sandbox's. */
  context?: ContextRef
  /** Seconds after which the code is interrupted. Default: never. */
  timeout?: number
  /** Environment of this call. */
  env?: Record<string, string>
  /** Working directory of this call. */
  cwd?: string
  /** The user, for bash. Default `root`. */
  user?: string
}

/** A sandbox: a machine of its own. */
export class Sandbox implements AsyncDisposable {
  readonly id: string
  readonly client: Ramet
  readonly commands: Commands
  readonly pty: Pty
  readonly files: Files
  readonly contexts: Contexts
  readonly checkpoints: Checkpoints
  readonly ports: Ports
  #info: SandboxInfo

  /** @internal */
  constructor(client: Ramet, info: SandboxInfo) {
    const { api } = client
    this.client = client
    this.id = info.id
    this.#info = info
    this.commands = new Commands(api, this.id)
    this.pty = new Pty(api, this.id)
    this.files = new Files(api, this.id)
    this.contexts = new Contexts(api, this.id)
    this.ports = new Ports(client, this.id)
    this.checkpoints = new Checkpoints(
      api,
      this.id,
      (record) => this.#took(record),
      (options) => Sandbox.create({ client, ...options }),
    )
  }

  /** Creates a sandbox and waits until it takes calls. */
  static create(options?: CreateOptions): Promise<Sandbox>
  static create(template: string, options?: CreateOptions): Promise<Sandbox>
  static async create(first: string | CreateOptions = {}, second: CreateOptions = {}): Promise<Sandbox> {
    const o = typeof first === 'string' ? { ...second, template: first } : first
    const client = o.client ?? Ramet.shared()
    const body = known({
      template: o.template,
      env: o.env,
      metadata: o.metadata,
      memory_mb: o.memoryMb,
      vcpus: o.vcpus,
      disk_mb: o.diskMb,
      egress: o.egress,
      egress_policy: o.egressPolicy,
      idle_timeout_s: o.idleTimeout,
      max_lifetime_s: o.maxLifetime,
      ends_in_s: o.endsIn,
      at_end: o.atEnd,
      persistent: o.persistent,
      isolation: o.isolation,
      checkpoint: o.checkpoint === undefined ? undefined : checkpointId(o.checkpoint),
      reseed: o.reseed,
    })
    const record = await client.api.request('post', '/v1/sandboxes', { body, idempotencyKey: o.idempotencyKey ?? platform.randomId(), ...signalOf(o) })
    return new Sandbox(client, model<SandboxInfo>(record))
  }

  /** A sandbox that exists. A hibernated one stays so until the first call that needs it. */
  static async connect(id: string, options: ClientOption & CallOptions = {}): Promise<Sandbox> {
    const client = options.client ?? Ramet.shared()
    return new Sandbox(client, await getSandbox(client, id, signalOf(options)))
  }

  /** The sandboxes of the project, newest first, page by page. */
  static list(options: ListOptions = {}): AsyncGenerator<SandboxInfo, void, undefined> {
    const { client = Ramet.shared(), status, template, metadata, limit } = options
    return pages(limit, async (cursor) => {
      const page = await client.api.request('get', '/v1/sandboxes', {
        query: known({
          limit: Math.min(limit ?? pageSize, pageSize),
          cursor,
          status,
          template,
          metadata: metadata && Object.entries(metadata).map(([k, v]) => `${k}=${v}`),
        }),
        ...signalOf(options),
      })
      return { entries: model<SandboxInfo[]>(page.sandboxes), next: page.next_cursor }
    })
  }

  /** The record as it was last seen. */
  get info(): SandboxInfo {
    return this.#info
  }

  /** The labels of it. */
  get metadata(): Readonly<Record<string, string>> {
    return this.#info.metadata
  }

  #took(record: SandboxInfo): SandboxInfo {
    this.#info = record
    return record
  }

  /** The record as it is now. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#took(await getSandbox(this.client, this.id, options))
  }

  /** Whether it is there and takes calls. A hibernated one does: the call wakes it. */
  async isRunning(options: CallOptions = {}): Promise<boolean> {
    try {
      const { status } = await this.refresh(options)
      return status === 'running' || status === 'hibernated' || status === 'hibernating' || status === 'waking'
    } catch (err) {
      if (err instanceof NotFoundError) return false
      throw err
    }
  }

  /** Changes settings. What is absent stays; a metadata value of null removes its key. */
  async update(options: CallOptions & UpdateOptions): Promise<SandboxInfo> {
    const body = known({
      idle_timeout_s: options.idleTimeout,
      max_lifetime_s: options.maxLifetime,
      ends_in_s: options.endsIn,
      at_end: options.atEnd,
      metadata: options.metadata,
    })
    return this.#took(model<SandboxInfo>(await this.client.api.request('patch', '/v1/sandboxes/{id}', { path: { id: this.id }, body, ...signalOf(options) })))
  }

  /** Replaces what it may reach. It is in force when this returns; `false` closes the network and keeps the rules given. */
  async setEgress(egress = true, options: EgressPolicy & CallOptions = {}): Promise<SandboxInfo> {
    const { allow, deny, order } = options
    const body = { egress, egress_policy: known({ allow, deny, order }) }
    return this.#took(model<SandboxInfo>(await this.client.api.request('put', '/v1/sandboxes/{id}/egress', { path: { id: this.id }, body, ...signalOf(options) })))
  }

  /** Deletes it, and returns when all of it is gone. Deleting again is no error. */
  async delete(options: CallOptions = {}): Promise<void> {
    try {
      await this.client.api.request('delete', '/v1/sandboxes/{id}', { path: { id: this.id }, ...options })
    } catch (err) {
      // Gone is what was asked for: merged into another, or so long ago that there is no record.
      if (!(err instanceof NotFoundError)) throw err
    }
  }

  /** The same as delete. */
  async close(): Promise<void> {
    await this.delete()
  }

  /** `await using sandbox = …` deletes it at the end of the block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete()
  }

  /**
   * Runs code and waits for it. Variables, imports and open files stay for the next call. An exception of the code is
   * in the result's `error`, and not thrown; `check()` throws it.
   */
  async runCode(code: string, options: RunOptions & ExecutionCallbacks = {}): Promise<Execution> {
    const answer = await this.#exec(code, options)
    const execution = new Execution(answer.header('x-run-id') ?? '')
    for await (const { event } of runEvents(answer)) await execution.take(event, options)
    return execution
  }

  /** Runs code and yields what it does: first `started`, last `exit`. Leaving the iteration early interrupts it. */
  async *runCodeStream(code: string, options: RunOptions = {}): AsyncGenerator<ExecutionEvent, void, undefined> {
    const answer = await this.#exec(code, options)
    for await (const { event } of runEvents(answer)) yield event
  }

  #exec(code: string, o: RunOptions) {
    return this.client.api.open('post', '/v1/sandboxes/{id}/exec', {
      path: { id: this.id },
      body: known({
        code,
        language: o.language,
        context: o.context === undefined ? undefined : contextId(o.context),
        timeout_s: o.timeout,
        env: o.env,
        cwd: o.cwd,
        user: o.user,
        format: 'chunks',
      }),
      ...signalOf(o),
    })
  }

  /** Makes `n` sandboxes with the memory, processes and files of this one, which goes on. */
  async fork(n = 1, options: CallOptions & { reseed?: boolean; idempotencyKey?: string } = {}): Promise<Sandbox[]> {
    const forked = await this.client.api.request('post', '/v1/sandboxes/{id}/fork', {
      path: { id: this.id },
      body: known({ n, reseed: options.reseed }),
      idempotencyKey: options.idempotencyKey ?? platform.randomId(),
      ...signalOf(options),
    })
    return model<SandboxInfo[]>(forked.sandboxes).map((record) => new Sandbox(this.client, record))
  }

  /** Makes this sandbox what `winner` is, whose id is retired. What ran here has ended. */
  async mergeInto(winner: Sandbox | string, options: CallOptions = {}): Promise<SandboxInfo> {
    const record = await this.client.api.request('post', '/v1/sandboxes/{id}/merge_into/{winner}', {
      path: { id: this.id, winner: idOf(winner) },
      ...options,
    })
    return this.#took(model<SandboxInfo>(record))
  }

  /** Which files differ: `added` are only in the other one. Without paths `/root` and `/tmp` are compared. */
  async diff(other: Sandbox | string, paths?: string[], options: CallOptions = {}): Promise<Diff> {
    const body = known({ other: idOf(other), paths })
    return model<Diff>(await this.client.api.request('post', '/v1/sandboxes/{id}/diff', { path: { id: this.id }, body, ...options }))
  }

  /** Saves it and ends its machine. Any call wakes it. */
  async hibernate(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#took(model<SandboxInfo>(await this.client.api.request('post', '/v1/sandboxes/{id}/hibernate', { path: { id: this.id }, ...options })))
  }

  async wake(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#took(model<SandboxInfo>(await this.client.api.request('post', '/v1/sandboxes/{id}/wake', { path: { id: this.id }, ...options })))
  }

  /** What it uses. */
  async metrics(options: CallOptions = {}): Promise<Metrics> {
    return model<Metrics>(await this.client.api.request('get', '/v1/sandboxes/{id}/metrics', { path: { id: this.id }, ...options }))
  }

  /** The last lines of its serial console. */
  async console(options: CallOptions = {}): Promise<string> {
    return this.client.text('/v1/sandboxes/{id}/console', this.id, options)
  }

  /** What happens to it. Goes on over breaks of the connection, without a loss. */
  events(options: Omit<EventOptions, 'sandbox'> = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    return events(this.client.api, { ...options, sandbox: this.id })
  }

  /** Its family: all that have an ancestor in common with it. */
  async lineage(options: CallOptions = {}): Promise<Lineage> {
    return this.client.lineage({ sandbox: this.id, ...options })
  }

  /** The host of a port of it, such as `3000-….example.com`. */
  async getHost(port: number, options: CallOptions = {}): Promise<string> {
    return this.client.previewHost(this.id, port, options)
  }

  /** The address at which a port of it is reached from outside. */
  async previewUrl(port: number, options: CallOptions = {}): Promise<string> {
    const { protocol } = new URL(this.client.api.url)
    return `${protocol}//${await this.getHost(port, options)}`
  }
}

async function getSandbox(client: Ramet, id: string, options: CallOptions): Promise<SandboxInfo> {
  return model<SandboxInfo>(await client.api.request('get', '/v1/sandboxes/{id}', { path: { id }, ...options }))
}

function idOf(sandbox: Sandbox | string): string {
  return typeof sandbox === 'string' ? sandbox : sandbox.id
}

function signalOf(options: CallOptions): CallOptions {
  return options.signal ? { signal: options.signal } : {}
}

// A server, with what belongs to no single sandbox.

import { platform } from './platform/current.js'
import type { components } from './api.gen.js'
import { ApiClient, type CallOptions, type ClientOptions, readText } from './client.js'
import { known, model } from './convert.js'
import { InvalidRequestError, RametError, UnsupportedError } from './errors.js'
import { events, type EventOptions } from './events.js'
import { ndjson, silence } from './lines.js'
import type { Capacity, Checkpoint, Key, KeyCreated, Lineage, Project, SandboxEvent, SandboxInfo, ServerInfo, Space, Template, Usage } from './models.gen.js'
import { Sandbox } from './sandbox.js'
import { type CheckpointRef, checkpointId, pages, pageSize } from './state.js'

/** A client of one server. It keeps connections; close() gives them back. */
export class Ramet {
  /** Every call of the API, with its types. */
  readonly api: ApiClient
  readonly checkpoints: AllCheckpoints
  readonly spaces: Spaces
  readonly templates: Templates
  readonly keys: Keys
  readonly projects: Projects
  #domain: Promise<string> | undefined

  constructor(options: ClientOptions = {}) {
    this.api = new ApiClient(options)
    this.checkpoints = new AllCheckpoints(this.api)
    this.spaces = new Spaces(this)
    this.templates = new Templates(this.api)
    this.keys = new Keys(this.api)
    this.projects = new Projects(this.api)
  }

  static #shared: { client: Ramet; settings: string } | undefined

  /** The client of this program: made of the environment, anew when that changes. */
  static shared(): Ramet {
    const settings = ['RAMET_URL', 'RAMET_API_KEY', 'RAMET_CA', 'RAMET_HOME'].map((name) => platform.env(name) ?? '').join('\n')
    if (Ramet.#shared?.settings !== settings) Ramet.#shared = { client: new Ramet(), settings }
    return Ramet.#shared.client
  }

  get url(): string {
    return this.api.url
  }

  /** What this server is. */
  async info(options: CallOptions = {}): Promise<ServerInfo> {
    return model<ServerInfo>(await this.api.request('get', '/v1/info', options))
  }

  /** What it keeps ready. */
  async capacity(options: CallOptions = {}): Promise<Capacity> {
    return model<Capacity>(await this.api.request('get', '/v1/capacity', options))
  }

  /** What sandboxes and templates cost the host. */
  async usage(options: CallOptions = {}): Promise<Usage> {
    return model<Usage>(await this.api.request('get', '/v1/usage', options))
  }

  /** What happens to the sandboxes of the project. Goes on over breaks of the connection, without a loss. */
  events(options: EventOptions = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    return events(this.api, options)
  }

  /** Which sandboxes and checkpoints come of which: of one family, or of the whole project. */
  async lineage(options: CallOptions & { sandbox?: string } = {}): Promise<Lineage> {
    const { sandbox, ...rest } = options
    return model<Lineage>(await this.api.request('get', '/v1/lineage', { query: known({ sandbox }), ...rest }))
  }

  /** Closes the connections that are kept for further calls. */
  close(): void {
    this.api.close()
  }

  /** @internal */
  async text(path: '/v1/sandboxes/{id}/console', id: string, options: CallOptions): Promise<string> {
    return readText((await this.api.open('get', path, { path: { id }, ...options })).body)
  }

  /** @internal */
  async previewHost(id: string, port: number, options: CallOptions): Promise<string> {
    if (!Number.isInteger(port) || port < 1 || port > 65535) {
      throw new InvalidRequestError(`${port} is no port`, { code: 'invalid_port', hint: 'give a number from 1 to 65535' })
    }
    this.#domain ??= this.#previewDomain(options)
    try {
      return `${port}-${previewId(id)}.${await this.#domain}`
    } catch (err) {
      this.#domain = undefined
      throw err
    }
  }

  async #previewDomain(options: CallOptions): Promise<string> {
    const { preview_domain: domain } = await this.api.request('get', '/v1/info', options)
    if (domain) return domain
    throw new UnsupportedError('this server has no previews', { code: 'no_previews', hint: 'use a server that has the setting preview_domain' })
  }
}

/** previewId is the name of a sandbox in the host of a preview, which has no underscores. */
function previewId(id: string): string {
  return id.replace(/^sbx_/, 'i')
}

/** `client.checkpoints`: those of all sandboxes. */
export class AllCheckpoints {
  readonly #api: ApiClient
  /** @internal */
  constructor(api: ApiClient) {
    this.#api = api
  }

  list(options: CallOptions & { limit?: number } = {}): AsyncGenerator<Checkpoint, void, undefined> {
    const { limit, ...rest } = options
    return pages(limit, async (cursor) => {
      const query = known({ limit: Math.min(limit ?? pageSize, pageSize), cursor })
      const page = await this.#api.request('get', '/v1/checkpoints', { query, ...rest })
      return { entries: model<Checkpoint[]>(page.checkpoints), next: page.next_cursor }
    })
  }

  async get(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<Checkpoint> {
    return model<Checkpoint>(await this.#api.request('get', '/v1/checkpoints/{id}', { path: { id: checkpointId(checkpoint) }, ...options }))
  }

  async delete(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<void> {
    await this.#api.request('delete', '/v1/checkpoints/{id}', { path: { id: checkpointId(checkpoint) }, ...options })
  }
}

/** A Space, or its id. */
export type SpaceRef = string | { readonly id: string }

function spaceId(space: SpaceRef): string {
  return typeof space === 'string' ? space : space.id
}

/** `client.spaces`: sessions that outlived their sandboxes. */
export class Spaces {
  readonly #client: Ramet
  /** @internal */
  constructor(client: Ramet) {
    this.#client = client
  }

  list(options: CallOptions & { limit?: number } = {}): AsyncGenerator<Space, void, undefined> {
    const { limit, ...rest } = options
    return pages(limit, async (cursor) => {
      const query = known({ limit: Math.min(limit ?? pageSize, pageSize), cursor })
      const page = await this.#client.api.request('get', '/v1/spaces', { query, ...rest })
      return { entries: model<Space[]>(page.spaces), next: page.next_cursor }
    })
  }

  async get(space: SpaceRef, options: CallOptions = {}): Promise<Space> {
    return model<Space>(await this.#client.api.request('get', '/v1/spaces/{id}', { path: { id: spaceId(space) }, ...options }))
  }

  /** Makes a sandbox of it, in which its processes go on. The Space is consumed. */
  async resume(space: SpaceRef, options: CallOptions & { idleTimeout?: number; maxLifetime?: number; idempotencyKey?: string } = {}): Promise<Sandbox> {
    const { idleTimeout, maxLifetime, idempotencyKey = platform.randomId(), ...rest } = options
    const record = await this.#client.api.request('post', '/v1/spaces/{id}/resume', {
      path: { id: spaceId(space) },
      body: known({ idle_timeout_s: idleTimeout, max_lifetime_s: maxLifetime }),
      idempotencyKey,
      ...rest,
    })
    return new Sandbox(this.#client, model<SandboxInfo>(record))
  }

  async delete(space: SpaceRef, options: CallOptions = {}): Promise<void> {
    await this.#client.api.request('delete', '/v1/spaces/{id}', { path: { id: spaceId(space) }, ...options })
  }
}

/** How far the build of a template is. */
export interface BuildProgress {
  step: string
  /** Its last line of output. */
  detail?: string
  /** 0 to 1, where it is known. */
  fraction?: number
  done: boolean
}

/** `client.templates`. */
export class Templates {
  readonly #api: ApiClient
  /** @internal */
  constructor(api: ApiClient) {
    this.#api = api
  }

  async list(options: CallOptions = {}): Promise<Template[]> {
    const { templates } = await this.#api.request('get', '/v1/templates', options)
    return model<Template[]>(templates)
  }

  /** Builds a template. It goes on when the call is aborted; the same call joins it. */
  async build(name: string, options: CallOptions & { onProgress?: (progress: BuildProgress) => void } = {}): Promise<Template> {
    const { onProgress, ...rest } = options
    const answer = await this.#api.open('post', '/v1/templates', { body: { name }, ...rest })
    for await (const e of ndjson<components['schemas']['BuildEvent']>(answer.body, silence)) {
      if (e.type === 'progress') onProgress?.(known({ step: e.step ?? '', detail: e.detail, fraction: e.fraction, done: e.done ?? false }) as BuildProgress)
      if (e.type === 'error') throw new RametError(e.error ?? 'the build failed', known({ code: e.code, requestId: e.request_id }))
      if (e.type === 'done' && e.template) return model<Template>(e.template)
    }
    throw new RametError('the stream of the build ended early', { code: 'connection_lost', hint: 'the build goes on: the same call joins it' })
  }

  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#api.request('delete', '/v1/templates/{name}', { path: { name }, ...options })
  }
}

/** `client.keys`. */
export class Keys {
  readonly #api: ApiClient
  /** @internal */
  constructor(api: ApiClient) {
    this.#api = api
  }

  async list(options: CallOptions & { project?: string } = {}): Promise<Key[]> {
    const { project, ...rest } = options
    const { keys } = await this.#api.request('get', '/v1/keys', { query: known({ project }), ...rest })
    return model<Key[]>(keys)
  }

  /** Makes a key. The answer is the only place that ever holds its secret. */
  async create(options: CallOptions & { name?: string; project?: string; format?: 'ramet' | 'e2b'; idempotencyKey?: string } = {}): Promise<KeyCreated> {
    const { name, project, format, idempotencyKey = platform.randomId(), ...rest } = options
    return model<KeyCreated>(await this.#api.request('post', '/v1/keys', { body: known({ name, project, format }), idempotencyKey, ...rest }))
  }

  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#api.request('delete', '/v1/keys/{id}', { path: { id }, ...options })
  }
}

/** Each limit: a number above 0, 0 for the server's default, -1 for none. What is absent stays. */
export interface ProjectSettings {
  maxSandboxes?: number
  maxMemoryMb?: number
  maxDiskMb?: number
  retainHibernatedS?: number
  retainSpacesS?: number
  retainCheckpointsS?: number
}

/** `client.projects`. */
export class Projects {
  readonly #api: ApiClient
  /** @internal */
  constructor(api: ApiClient) {
    this.#api = api
  }

  async list(options: CallOptions = {}): Promise<Project[]> {
    const { projects } = await this.#api.request('get', '/v1/projects', options)
    return model<Project[]>(projects)
  }

  async get(name: string, options: CallOptions = {}): Promise<Project> {
    return model<Project>(await this.#api.request('get', '/v1/projects/{name}', { path: { name }, ...options }))
  }

  /** Makes a project, or changes its quota and retention. For an admin's key. */
  async set(name: string, settings: ProjectSettings = {}, options: CallOptions = {}): Promise<Project> {
    const body = known({
      max_sandboxes: settings.maxSandboxes,
      max_memory_mb: settings.maxMemoryMb,
      max_disk_mb: settings.maxDiskMb,
      retain_hibernated_s: settings.retainHibernatedS,
      retain_spaces_s: settings.retainSpacesS,
      retain_checkpoints_s: settings.retainCheckpointsS,
    })
    return model<Project>(await this.#api.request('put', '/v1/projects/{name}', { path: { name }, body, ...options }))
  }
}

// Files of a sandbox.

import { platform } from './platform/current.js'
import type { components } from './api.gen.js'
import type { ApiClient, CallOptions, OpenAnswer } from './client.js'
import { readBytes, readText } from './client.js'
import { known, model } from './convert.js'
import { ConnectionError, NotFoundError, RametError, streamErrorOf } from './errors.js'
import { ndjson, silence } from './lines.js'
import type { Extracted, FileInfo } from './models.gen.js'
import type { ByteStream, Data } from './transport.js'

/** What every call on files takes. */
export interface FileOptions extends CallOptions {
  /** The user of the sandbox to act as. Default `root`. */
  user?: string
}

export interface WriteOptions extends FileOptions {
  /** Permission bits: `0o644`, or `"0644"`. Default: 0644, or those of the file that is replaced. */
  mode?: number | string
  /** Make missing directories. Default true. */
  parents?: boolean
}

export interface WriteFileOptions extends WriteOptions {
  /** Extended attributes that the file gets, without the `user.` in front of their names. It has no others then. */
  attributes?: Record<string, string>
}

/** A change in a directory that is watched. */
export interface FileChange {
  readonly type: 'change'
  /** In the directory that is watched; `.` is that itself. */
  readonly path: string
  readonly change: 'create' | 'write' | 'remove' | 'rename' | 'chmod' | (string & {})
  /** With the option `info`, if it was still there. */
  readonly info?: FileInfo
}

/** More changed than could be told: look yourself. */
export interface FileOverflow {
  readonly type: 'overflow'
}

export type FileEvent = FileChange | FileOverflow

/** How many files writeMany writes at a time. */
const parallel = 8

const octets = { 'content-type': 'application/octet-stream' }

/** `sandbox.files`. Relative paths begin at the home directory of the user. */
export class Files {
  readonly #api: ApiClient
  readonly #id: string

  /** @internal */
  constructor(api: ApiClient, id: string) {
    this.#api = api
    this.#id = id
  }

  /** Reads a file: as text (UTF-8), as bytes, or as a stream. */
  read(path: string, options: FileOptions & { format: 'bytes' }): Promise<Uint8Array>
  read(path: string, options: FileOptions & { format: 'stream' }): Promise<ReadableStream<Uint8Array>>
  read(path: string, options?: FileOptions & { format?: 'text' }): Promise<string>
  async read(path: string, options: FileOptions & { format?: 'text' | 'bytes' | 'stream' } = {}): Promise<string | Uint8Array | ReadableStream<Uint8Array>> {
    const { format = 'text', user, ...rest } = options
    const answer = await this.#api.open('get', '/v1/sandboxes/{id}/files', { path: { id: this.#id }, query: known({ path, user }), ...rest })
    if (format === 'stream') return readable(answer.body)
    return format === 'bytes' ? readBytes(answer.body) : readText(answer.body)
  }

  /** Writes a file as a whole or not at all. Streams are sent as they come (in browsers they are collected first). */
  async write(path: string, data: Data, options: WriteFileOptions = {}): Promise<FileInfo> {
    const { user, mode, parents = true, attributes, ...rest } = options
    const info = await this.#api.request('put', '/v1/sandboxes/{id}/files', {
      path: { id: this.#id },
      query: known({ path, user, mode: octal(mode), parents, attribute: attributes && Object.entries(attributes).map(([k, v]) => `${k}=${v}`) }),
      body: data as never,
      headers: octets,
      ...rest,
    })
    return model<FileInfo>(info)
  }

  /** Writes several files, some at a time. The first failure is thrown, and no further one is begun. */
  async writeMany(files: Iterable<{ path: string; data: Data } | readonly [path: string, data: Data]>, options: WriteFileOptions = {}): Promise<FileInfo[]> {
    const todo = [...files].map((f) => ('path' in f ? ([f.path, f.data] as const) : f))
    const out: FileInfo[] = new Array(todo.length)
    let next = 0
    let failed = false
    const work = async () => {
      while (!failed && next < todo.length) {
        const i = next++
        const [path, data] = todo[i] as readonly [string, Data]
        try {
          out[i] = await this.write(path, data, options)
        } catch (err) {
          failed = true
          throw err
        }
      }
    }
    const outcomes = await Promise.allSettled(Array.from({ length: Math.min(parallel, todo.length) }, work))
    for (const o of outcomes) if (o.status === 'rejected') throw o.reason
    return out
  }

  /** What a directory holds; with `depth` also what the directories in it hold. */
  async list(path: string, options: FileOptions & { depth?: number } = {}): Promise<FileInfo[]> {
    const { user, depth, ...rest } = options
    const list = await this.#api.request('get', '/v1/sandboxes/{id}/files/list', { path: { id: this.#id }, query: known({ path, user, depth }), ...rest })
    if (list.truncated) {
      throw new RametError(`${path} has more entries than a list can show (${list.files.length})`, { code: 'list_truncated', hint: 'list with a smaller depth, or with a command' })
    }
    return model<FileInfo[]>(list.files)
  }

  /** What a path is. With `follow: false` a symbolic link is told as such. */
  async stat(path: string, options: FileOptions & { follow?: boolean } = {}): Promise<FileInfo> {
    const { user, follow = true, ...rest } = options
    return model<FileInfo>(
      await this.#api.request('get', '/v1/sandboxes/{id}/files/stat', { path: { id: this.#id }, query: known({ path, user, follow }), ...rest }),
    )
  }

  /** Whether there is something at a path. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, { ...options, follow: false })
      return true
    } catch (err) {
      if (err instanceof NotFoundError && err.code === 'file_not_found') return false
      throw err
    }
  }

  /** Makes a directory. With `parents` (the default) one that is there is no error. */
  async mkdir(path: string, options: WriteOptions = {}): Promise<FileInfo> {
    const { user, mode, parents = true, ...rest } = options
    const body = known({ path, user, mode: octal(mode), parents })
    return model<FileInfo>(await this.#api.request('post', '/v1/sandboxes/{id}/files/mkdir', { path: { id: this.#id }, body, ...rest }))
  }

  /** Moves or renames. */
  async rename(from: string, to: string, options: FileOptions & { overwrite?: boolean } = {}): Promise<FileInfo> {
    const { user, overwrite, ...rest } = options
    const body = known({ from, to, user, overwrite })
    return model<FileInfo>(await this.#api.request('post', '/v1/sandboxes/{id}/files/move', { path: { id: this.#id }, body, ...rest }))
  }

  /** Removes a file or an empty directory; with `recursive` also one that is not empty. */
  async remove(path: string, options: FileOptions & { recursive?: boolean } = {}): Promise<void> {
    const { user, recursive, ...rest } = options
    await this.#api.request('delete', '/v1/sandboxes/{id}/files', { path: { id: this.#id }, query: known({ path, user, recursive }), ...rest })
  }

  /** Changes mode, owner or group. */
  async setAttributes(path: string, options: FileOptions & { mode?: number | string; owner?: string; group?: string }): Promise<FileInfo> {
    const { user, mode, owner, group, ...rest } = options
    const body = known({ path, user, mode: octal(mode), owner, group })
    return model<FileInfo>(await this.#api.request('post', '/v1/sandboxes/{id}/files/attributes', { path: { id: this.#id }, body, ...rest }))
  }

  /** Copies a file of this machine into the sandbox, in constant memory. Not in browsers. */
  async upload(local: string, remote: string, options: WriteFileOptions = {}): Promise<FileInfo> {
    return this.write(remote, await platform.readLocal(local), options)
  }

  /** Copies a file of the sandbox to this machine, in constant memory; returns its size. Not in browsers. */
  async download(remote: string, local: string, options: FileOptions = {}): Promise<number> {
    const { user, ...rest } = options
    const answer = await this.#api.open('get', '/v1/sandboxes/{id}/files', { path: { id: this.#id }, query: known({ path: remote, user }), ...rest })
    return platform.writeLocal(local, answer.body)
  }

  /** A file or directory as a tar, as it comes. */
  async readArchive(path: string, options: FileOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { user, ...rest } = options
    const answer = await this.#api.open('get', '/v1/sandboxes/{id}/archive', { path: { id: this.#id }, query: known({ path, user }), ...rest })
    return readable(answer.body)
  }

  /** Unpacks a tar into a directory, which is made when it is missing. */
  async writeArchive(path: string, tar: Data, options: FileOptions = {}): Promise<Extracted> {
    const { user, ...rest } = options
    const done = await this.#api.request('put', '/v1/sandboxes/{id}/archive', {
      path: { id: this.#id },
      query: known({ path, user }),
      body: tar as never,
      headers: { 'content-type': 'application/x-tar' },
      ...rest,
    })
    return model<Extracted>(done)
  }

  /** Watches a directory, or a file. What changes after this has returned is told. */
  async watch(path: string, options: FileOptions & { recursive?: boolean; info?: boolean } = {}): Promise<FileWatch> {
    const { user, recursive, info, ...rest } = options
    const answer = await this.#api.open('get', '/v1/sandboxes/{id}/files/watch', { path: { id: this.#id }, query: known({ path, user, recursive, info }), ...rest })
    const watch = new FileWatch(answer)
    await watch.ready()
    return watch
  }
}

type WatchLine = components['schemas']['FileChange']

/** Yields what changes, until it is closed or the sandbox ends. */
export class FileWatch implements AsyncIterableIterator<FileEvent>, AsyncDisposable {
  readonly #answer: OpenAnswer
  readonly #lines: AsyncGenerator<WatchLine, void, undefined>
  #closed = false

  /** @internal */
  constructor(answer: OpenAnswer) {
    this.#answer = answer
    this.#lines = ndjson<WatchLine>(answer.body, silence)
  }

  /** @internal */
  async ready(): Promise<void> {
    for (;;) {
      const line = await this.#line()
      if (line?.type === 'started') return
      if (line === undefined) throw new ConnectionError('the watch ended before it had begun', { code: 'connection_lost', mayHaveRun: false })
    }
  }

  async #line(): Promise<WatchLine | undefined> {
    if (this.#closed) return undefined
    try {
      const { value, done } = await this.#lines.next()
      if (done) {
        throw new ConnectionError('the watch was cut off', { code: 'connection_lost', mayHaveRun: false, hint: 'watch again, and look what changed meanwhile' })
      }
      if (value.type === 'stream_error') {
        throw streamErrorOf(value.error ?? 'the watch ended', value.code ?? '', this.#answer.header('x-request-id') ?? '')
      }
      return value
    } catch (err) {
      if (this.#closed) return undefined
      this.close()
      throw err
    }
  }

  async next(): Promise<IteratorResult<FileEvent, undefined>> {
    for (;;) {
      const line = await this.#line()
      if (line === undefined) return { done: true, value: undefined }
      if (line.type === 'overflow') return { done: false, value: { type: 'overflow' } }
      if (line.type !== 'change') continue // a type of a newer server
      const event: FileChange = { type: 'change', path: line.path ?? '', change: line.change ?? '' }
      return { done: false, value: line.info === undefined ? event : { ...event, info: model<FileInfo>(line.info) } }
    }
  }

  async return(): Promise<IteratorResult<FileEvent, undefined>> {
    this.close()
    return { done: true, value: undefined }
  }

  /** Ends the watch; an iteration of it ends too. */
  close(): void {
    this.#closed = true
    this.#answer.body.cancel()
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close()
  }
}

function octal(mode: number | string | undefined): string | undefined {
  if (typeof mode !== 'number') return mode
  return mode.toString(8).padStart(4, '0')
}

/** readable makes a stream of the platform of a body, as fast as it is read. */
function readable(body: ByteStream): ReadableStream<Uint8Array> {
  const chunks = body[Symbol.asyncIterator]()
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { value, done } = await chunks.next()
          if (done) controller.close()
          else controller.enqueue(value)
        } catch (err) {
          controller.error(err)
        }
      },
      cancel() {
        body.cancel()
      },
    },
    { highWaterMark: 0 },
  )
}

// Checkpoints.

import { platform } from './platform/current.js'
import type { ApiClient, CallOptions } from './client.js'
import { known, model } from './convert.js'
import type { Checkpoint, SandboxInfo } from './models.gen.js'
import type { CreateOptions, Sandbox } from './sandbox.js'

/** A checkpoint, or its id. */
export type CheckpointRef = string | { readonly id: string }

/** @internal */
export function checkpointId(checkpoint: CheckpointRef): string {
  return typeof checkpoint === 'string' ? checkpoint : checkpoint.id
}

/** @internal Yields what comes in pages. No page is asked for before it is needed. */
export async function* pages<T>(
  limit: number | undefined,
  page: (cursor: string | undefined) => Promise<{ entries: T[]; next: string | undefined }>,
): AsyncGenerator<T, void, undefined> {
  let left = limit ?? Infinity
  if (left <= 0) return
  for (let cursor: string | undefined; ; ) {
    const { entries, next } = await page(cursor)
    for (const entry of entries) {
      yield entry
      if (--left <= 0) return
    }
    if (!next || entries.length === 0) return
    cursor = next
  }
}

/** How many entries are asked for at a time. */
export const pageSize = 200

/** `sandbox.checkpoints`: points to go back to, and to start others from. */
export class Checkpoints {
  readonly #api: ApiClient
  readonly #id: string
  readonly #changed: (record: SandboxInfo) => void
  readonly #spawn: (options: CreateOptions) => Promise<Sandbox>

  /** @internal */
  constructor(api: ApiClient, id: string, changed: (record: SandboxInfo) => void, spawn: (options: CreateOptions) => Promise<Sandbox>) {
    this.#api = api
    this.#id = id
    this.#changed = changed
    this.#spawn = spawn
  }

  /** Makes one. `full` (the default) keeps memory, processes and disk, `disk` the disk only. */
  async create(name?: string, options: CallOptions & { kind?: 'full' | 'disk'; deleteOldest?: boolean; idempotencyKey?: string } = {}): Promise<Checkpoint> {
    const { kind, deleteOldest, idempotencyKey = platform.randomId(), ...rest } = options
    const body = known({ name, kind, delete_oldest: deleteOldest })
    return model<Checkpoint>(await this.#api.request('post', '/v1/sandboxes/{id}/checkpoints', { path: { id: this.#id }, body, idempotencyKey, ...rest }))
  }

  /** Those of this sandbox, newest first. */
  list(options: CallOptions & { limit?: number } = {}): AsyncGenerator<Checkpoint, void, undefined> {
    const { limit, ...rest } = options
    return pages(limit, async (cursor) => {
      const query = known({ limit: Math.min(limit ?? pageSize, pageSize), cursor })
      const page = await this.#api.request('get', '/v1/sandboxes/{id}/checkpoints', { path: { id: this.#id }, query, ...rest })
      return { entries: model<Checkpoint[]>(page.checkpoints), next: page.next_cursor }
    })
  }

  /** Takes the sandbox back to one. What was there since is gone, and what runs ends. */
  async restore(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<SandboxInfo> {
    const record = model<SandboxInfo>(
      await this.#api.request('post', '/v1/sandboxes/{id}/restore', { path: { id: this.#id }, body: { checkpoint: checkpointId(checkpoint) }, ...options }),
    )
    this.#changed(record)
    return record
  }

  async delete(checkpoint: CheckpointRef, options: CallOptions = {}): Promise<void> {
    await this.#api.request('delete', '/v1/checkpoints/{id}', { path: { id: checkpointId(checkpoint) }, ...options })
  }

  /** Starts another sandbox from one. */
  spawn(checkpoint: CheckpointRef, options: Omit<CreateOptions, 'checkpoint' | 'template'> = {}): Promise<Sandbox> {
    return this.#spawn({ ...options, checkpoint: checkpointId(checkpoint) })
  }
}

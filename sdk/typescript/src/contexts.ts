// Interpreters besides the sandbox's own.

import type { ApiClient, CallOptions } from './client.js'
import { known, model } from './convert.js'
import type { Context } from './models.gen.js'

export type { Context }

/** A context, or its id. */
export type ContextRef = string | { readonly id: string }

/** @internal */
export function contextId(context: ContextRef): string {
  return typeof context === 'string' ? context : context.id
}

/** `sandbox.contexts`: each is an interpreter with variables and a working directory of its own. */
export class Contexts {
  readonly #api: ApiClient
  readonly #id: string

  /** @internal */
  constructor(api: ApiClient, id: string) {
    this.#api = api
    this.#id = id
  }

  /** Starts an interpreter: `python` (the default), `javascript` or `bash`. */
  async create(language?: string, options: CallOptions & { cwd?: string } = {}): Promise<Context> {
    const { cwd, ...rest } = options
    return model<Context>(
      await this.#api.request('post', '/v1/sandboxes/{id}/contexts', { path: { id: this.#id }, body: known({ language, cwd }), ...rest }),
    )
  }

  async list(options: CallOptions = {}): Promise<Context[]> {
    const { contexts } = await this.#api.request('get', '/v1/sandboxes/{id}/contexts', { path: { id: this.#id }, ...options })
    return model<Context[]>(contexts)
  }

  /** Gives it a new interpreter: its variables are gone. */
  async restart(context: ContextRef, options: CallOptions = {}): Promise<Context> {
    return model<Context>(
      await this.#api.request('post', '/v1/sandboxes/{id}/contexts/{context}/restart', {
        path: { id: this.#id, context: contextId(context) },
        ...options,
      }),
    )
  }

  async remove(context: ContextRef, options: CallOptions = {}): Promise<void> {
    await this.#api.request('delete', '/v1/sandboxes/{id}/contexts/{context}', { path: { id: this.#id, context: contextId(context) }, ...options })
  }
}

// Interpreters besides the sandbox's own.

import type { ApiClient, CallOptions } from './client.js'
import { known, model } from './convert.js'
import type { ContextInfo } from './models.gen.js'

export type { ContextInfo }

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

  /** Makes a context of a language, `python` without one. */
  async create(language = 'python', options: CallOptions & { cwd?: string } = {}): Promise<ContextInfo> {
    const { cwd, ...rest } = options
    return model<ContextInfo>(
      await this.#api.request('post', '/v1/sandboxes/{id}/contexts', { path: { id: this.#id }, body: known({ language, cwd }), ...rest }),
    )
  }

  async list(options: CallOptions = {}): Promise<ContextInfo[]> {
    const { contexts } = await this.#api.request('get', '/v1/sandboxes/{id}/contexts', { path: { id: this.#id }, ...options })
    return model<ContextInfo[]>(contexts)
  }

  /** Gives it a new interpreter: its variables are gone. */
  async restart(context: ContextRef, options: CallOptions = {}): Promise<ContextInfo> {
    return model<ContextInfo>(
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

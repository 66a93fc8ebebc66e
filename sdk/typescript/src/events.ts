// What happens to sandboxes, as it happens.

import type { components } from './api.gen.js'
import type { ApiClient, CallOptions } from './client.js'
import { sleep } from './client.js'
import { known, model } from './convert.js'
import { ConnectionError, errorOf, UnavailableError } from './errors.js'
import { serverSentEvents, silence } from './lines.js'
import type { SandboxEvent } from './models.gen.js'

export interface EventOptions extends CallOptions {
  /** Only events behind this id, or later than this time. Default: all that are kept. */
  since?: number | Date | string
  /** Only events of this sandbox. */
  sandbox?: string
  /** Go on with what happens. Default true; with false it ends with the last event that there is. */
  follow?: boolean
}

/** How long the server may be away, in milliseconds, before following it is given up. */
const patience = 60_000

/**
 * @internal Yields events, over breaks of the connection and restarts of the server: nothing is lost in between and
 * nothing comes twice. An event of the type `gap` says that older ones were forgotten already.
 */
export async function* events(api: ApiClient, options: EventOptions): AsyncGenerator<SandboxEvent, void, undefined> {
  const { since, sandbox, follow = true, signal } = options
  let position = since instanceof Date ? since.toISOString() : since === undefined ? undefined : String(since)
  let lostAt: number | undefined
  for (let wait = 100; ; wait = Math.min(wait * 2, 5000)) {
    try {
      const answer = await api.open('get', '/v1/events', { query: known({ since: position, sandbox, follow }), ...(signal ? { signal } : {}) })
      for await (const e of serverSentEvents(answer.body, silence)) {
        lostAt = undefined
        wait = 100
        if (e.event === 'error') {
          const body = JSON.parse(e.data) as components['schemas']['Error']
          throw errorOf(body.code === 'shutting_down' ? 503 : body.code === 'key_revoked' ? 401 : 500, body.error, body.code, body.request_id, 0)
        }
        if (e.event === 'gap') {
          const { reason } = JSON.parse(e.data) as { reason: string }
          yield { id: 0, time: new Date(), sandbox: sandbox ?? '', type: 'gap', state: '', reason, cause: '', data: {} }
          continue
        }
        const event = model<SandboxEvent>(JSON.parse(e.data))
        position = e.id || String(event.id)
        yield event
      }
      if (!follow) return
    } catch (err) {
      const passing = err instanceof ConnectionError || (err instanceof UnavailableError && err.code === 'shutting_down')
      if (!passing || !follow || signal?.aborted) throw err
      lostAt ??= Date.now()
      if (Date.now() - lostAt > patience) throw err
    }
    await sleep(wait, signal)
  }
}

// The two forms of streams: lines of JSON and server-sent events. Both stay alive by
// something that the server sends every 10 seconds.

import { RametError, TimeoutError } from './errors.js'
import type { ByteStream } from './transport.js'

/** How long a stream may say nothing at all, in milliseconds, before it counts as dead. */
export const silence = 60_000
/** The longest line that is taken, in characters. Results with images are the longest. */
const maxLine = 64 << 20
/** How long the end of a stream may take after its last event, in milliseconds. */
const patience = 1000

/** within yields what comes, and throws when nothing comes for so long while somebody waits. */
export async function* within(body: ByteStream, ms: number): AsyncGenerator<Uint8Array, void, undefined> {
  let dead = false
  let timer: ReturnType<typeof setTimeout> | undefined
  const iterator = body[Symbol.asyncIterator]()
  let ended = false
  try {
    for (;;) {
      timer = setTimeout(() => {
        dead = true
        body.cancel()
      }, ms)
      const step = await iterator.next()
      clearTimeout(timer)
      if (dead) break
      if (step.done) {
        ended = true
        return
      }
      yield step.value
    }
  } catch (err) {
    ended = true
    if (!dead) throw err
  } finally {
    clearTimeout(timer)
    if (!ended) await iterator.return?.()
  }
  throw new TimeoutError(`nothing came from the server for ${ms / 1000} s, not even the signs of life that it sends`, {
    code: 'stream_dead',
    mayHaveRun: true,
    hint: 'what it followed may go on; see whether the server is reachable',
  })
}

/** lines yields the lines of a stream without their ends, the empty ones too. */
async function* lines(body: ByteStream, quiet: number): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder()
  const parts: string[] = []
  let held = 0
  for await (const chunk of within(body, quiet)) {
    const text = decoder.decode(chunk, { stream: true })
    let from = 0
    for (let to = text.indexOf('\n'); to >= 0; to = text.indexOf('\n', from)) {
      const line = text.slice(from, to)
      from = to + 1
      if (parts.length === 0) {
        yield line
        continue
      }
      parts.push(line)
      yield parts.splice(0).join('')
      held = 0
    }
    if (from < text.length) {
      parts.push(text.slice(from))
      held += text.length - from
      if (held > maxLine) throw new RametError('the server sent a line that is too long', { code: 'line_too_long' })
    }
  }
}

/** ndjson yields the objects of a stream and skips the empty lines. Half a line at the end is dropped. */
export async function* ndjson<T>(body: ByteStream, quiet: number): AsyncGenerator<T, void, undefined> {
  for await (const line of lines(body, quiet)) {
    if (line.trim() !== '') yield parse<T>(line)
  }
}

function parse<T>(text: string): T {
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    throw new RametError('the server sent a line that is not JSON', { code: 'bad_stream', hint: 'see whether url is that of a Ramet server', cause })
  }
}

export interface ServerSentEvent {
  id: string
  event: string
  data: string
}

/** serverSentEvents yields events and skips comments. */
export async function* serverSentEvents(body: ByteStream, quiet: number): AsyncGenerator<ServerSentEvent, void, undefined> {
  let e: ServerSentEvent = { id: '', event: '', data: '' }
  for await (const line of lines(body, quiet)) {
    if (line === '') {
      if (e.data !== '') yield e
      e = { id: '', event: '', data: '' }
      continue
    }
    const colon = line.indexOf(':')
    if (colon <= 0) continue
    const value = line.slice(colon + 1).replace(/^ /, '')
    switch (line.slice(0, colon)) {
      case 'id':
        e.id = value
        break
      case 'event':
        e.event = value
        break
      case 'data':
        e.data += e.data === '' ? value : '\n' + value
        break
    }
  }
}

/**
 * afterLast lets a stream come to its end after its last event, so that its connection can
 * be used again. It waits for nothing.
 */
export function afterLast(iterator: AsyncIterator<unknown>, body: ByteStream): void {
  const timer = setTimeout(() => body.cancel(), patience)
  void (async () => {
    try {
      while (!(await iterator.next()).done);
    } catch {
      // Nobody needs what comes after the last event.
    } finally {
      clearTimeout(timer)
    }
  })()
}

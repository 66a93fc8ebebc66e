// A real server on machines that are processes of this host.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { Ramet, type ClientOptions } from 'ramet'

export interface Server {
  url: string
  key: string
  adminKey: string
  client: Ramet
  connect(options?: ClientOptions): Ramet
  close(): Promise<void>
}

const script = fileURLToPath(new URL('../../../scripts/fake-server', import.meta.url))

export async function startServer(...args: string[]): Promise<Server> {
  const child = spawn(script, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  const lines = createInterface({ input: child.stdout })
  const first = await Promise.race([once(lines, 'line'), ended.then(() => undefined)])
  if (!first) throw new Error('the server did not start')
  const { url, key, admin_key: adminKey } = JSON.parse(String(first[0])) as { url: string; key: string; admin_key: string }
  const connect = (options: ClientOptions = {}) => new Ramet({ url, apiKey: key, ...options })
  const client = connect()
  return {
    url,
    key,
    adminKey,
    client,
    connect,
    async close() {
      client.close()
      child.stdin.end()
      await ended
    },
  }
}

/** Rejects when a promise takes too long. It is generous: the machine may be busy. */
export async function soon<T>(promise: Promise<T>, what: string, ms = 30_000): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  try {
    return await Promise.race([
      promise,
      new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`after ${ms} ms still not: ${what}`)), ms)
      }),
    ])
  } finally {
    clearTimeout(timer)
  }
}

export async function collect<T>(all: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = []
  for await (const one of all) out.push(one)
  return out
}

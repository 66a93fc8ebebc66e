// The API speaks snake_case and times in text; programs get camelCase and Date.

import { dates, opaque } from './models.gen.js'

function camelKey(s: string): string {
  return s.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase())
}

/** model converts an answer. Objects whose keys are the user's are left as they are. */
export function model<T>(value: unknown): T {
  return convert(value) as T
}

function convert(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(convert)
  if (typeof value !== 'object' || value === null) return value
  const out: Record<string, unknown> = {}
  for (const [key, v] of Object.entries(value)) {
    if (typeof v === 'string' && dates.has(key)) out[camelKey(key)] = new Date(v)
    else if (opaque.has(key) && !Array.isArray(v)) out[camelKey(key)] = v
    else out[camelKey(key)] = convert(v)
  }
  return out
}

/** known drops what is undefined, so that optional fields are absent. */
export function known<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  for (const key of Object.keys(value) as (keyof T)[]) if (value[key] === undefined) delete value[key]
  return value as never
}

/** fromBase64 works where Buffer is not. */
export function fromBase64(text: string): Uint8Array {
  const raw = atob(text)
  const out = new Uint8Array(raw.length)
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i)
  return out
}

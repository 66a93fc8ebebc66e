// The place where the package runs. The entry points node.ts and web.ts say which it is.

import type { Platform } from '../transport.js'

export let platform: Platform

export function use(p: Platform): void {
  platform = p
}

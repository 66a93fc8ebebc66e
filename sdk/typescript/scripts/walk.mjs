// Node's own recursive listing is younger than Node 18.

import { readdirSync } from 'node:fs'
import { join } from 'node:path'

/** The files below a directory, as paths in it. */
export function walk(dir, prefix = '') {
  return readdirSync(join(dir, prefix), { withFileTypes: true }).flatMap((e) => {
    const path = join(prefix, e.name)
    return e.isDirectory() ? walk(dir, path) : [path]
  })
}

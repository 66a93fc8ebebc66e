// Builds the package and its tests, checks the types of both, and runs the tests: all, or those that are named.

import { spawnSync } from 'node:child_process'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const run = (...args) => {
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}
const tsc = join(root, 'node_modules/typescript/bin/tsc')

run('scripts/build.mjs')
rmSync(join(root, 'build'), { recursive: true, force: true })
run(tsc, '-p', 'test/tsconfig.json')
const named = process.argv.slice(2)
const all = readdirSync(join(root, 'build')).filter((f) => f.endsWith('.test.js')).sort()
run('--test', ...all.filter((f) => named.length === 0 || named.some((n) => f.startsWith(n))).map((f) => join('build', f)))

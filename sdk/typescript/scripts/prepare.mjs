// Runs when the package is installed from its folder or a repository, and before it is packed: builds
// dist/ when it is not there or older than the sources. npm does not install what the build needs when it
// installs a folder; then this does.

import { spawnSync } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { walk } from './walk.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))

const newest = (dir) => Math.max(...walk(dir).map((f) => statSync(join(dir, f)).mtimeMs))
const built = join(root, 'dist/cjs/package.json') // the last file that a build writes
if (existsSync(built)) {
  const at = statSync(built).mtimeMs
  if (newest(join(root, 'src')) < at && newest(join(root, 'scripts')) < at && statSync(join(root, 'package.json')).mtimeMs < at) process.exit(0)
}

if (!existsSync(join(root, 'node_modules/typescript'))) {
  // Settings of the npm that runs this are about another folder.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_(config_(prefix|local_prefix|global|global_prefix|omit|include|production|install_links|ignore_scripts|workspace|workspaces|save|dry_run)|package_.*|lifecycle_.*)$/i.test(name) && name !== 'NODE_ENV'))
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ['npm']
  run(npm[0], [...npm.slice(1), 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], env)
}
run(process.execPath, [join(root, 'scripts/build.mjs')], process.env)

function run(command, args, env) {
  const { status, error } = spawnSync(command, args, { cwd: root, env, stdio: ['ignore', 2, 2] })
  if (error) console.error(error.message)
  if (status !== 0) process.exit(status ?? 1)
}

// Builds dist/: esm with the compiler, then cjs of the same sources. The declarations are the same for both.
// Types are checked by "npm run typecheck", which takes much longer.

import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'

import { walk } from './walk.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const ts = createRequire(join(root, 'package.json'))('typescript')
const dist = join(root, 'dist')

rmSync(dist, { recursive: true, force: true })
const tsc = spawnSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', join(root, 'tsconfig.json'), '--noCheck'], { stdio: 'inherit' })
if (tsc.status !== 0) process.exit(tsc.status ?? 1)

const src = join(root, 'src')
for (const file of walk(src)) {
  if (!file.endsWith('.ts')) continue
  const out = join(dist, 'cjs', file.replace(/\.ts$/, '.js'))
  mkdirSync(dirname(out), { recursive: true })
  const { outputText, sourceMapText } = ts.transpileModule(readFileSync(join(src, file), 'utf8'), {
    fileName: file,
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.CommonJS, sourceMap: true, verbatimModuleSyntax: false, stripInternal: true },
  })
  writeFileSync(out, outputText)
  const map = JSON.parse(sourceMapText)
  map.sources = [join('../'.repeat(1 + file.split('/').length), 'src', file)]
  writeFileSync(out + '.map', JSON.stringify(map))
}
for (const file of walk(join(dist, 'esm'))) {
  if (/\.d\.ts(\.map)?$/.test(file)) cpSync(join(dist, 'esm', file), join(dist, 'cjs', file))
}
// What says that this folder is CommonJS.
writeFileSync(join(dist, 'cjs/package.json'), '{ "type": "commonjs" }\n')

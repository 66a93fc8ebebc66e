// Uses the package in a page of a real browser: bundled, shown from another origin than that of the server, which
// has been told that origin. And in a page that it was not told.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { Browser } from './browser.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
/** How long all checks may take, in milliseconds. It is generous: the machine may be busy. */
const limit = 120_000

const browser = await Browser.start()
try {
  console.log(`ok - ${browser.version}`)
  const page = await servePage(await bundle())
  try {
    await test(page)
  } finally {
    page.close()
  }
} finally {
  await browser.close()
}

async function test(page) {
  const named = `http://127.0.0.1:${page.port}`
  const server = await startServer('--cors-origins', named, '--max-sandboxes', '1')
  try {
    const target = JSON.stringify({ url: server.url, key: server.key })
    const said = []
    const outcomes = await soon(browser.run(named, `checks.run(${target})`, (line) => said.push(line)), () => said.join('\n'))
    for (const { name, ms, error } of outcomes) console.log(`${error ? 'not ok' : 'ok'} - ${name} (${(ms / 1000).toFixed(1)} s)${error ? `\n${error}` : ''}`)
    const refusals = said.filter((line) => /CORS policy/.test(line))
    if (outcomes.some((o) => o.error) || refusals.length > 0) throw new Error(`the checks failed in the browser, which said:\n${said.join('\n')}`)

    // The same page under another name is another origin.
    said.length = 0
    const told = await soon(browser.run(`http://localhost:${page.port}`, `checks.refused(${target})`, (line) => said.push(line)), () => said.join('\n'))
    if (told.code !== 'unreachable' || !/CORS/.test(told.hint) || !said.some((line) => /CORS policy/.test(line))) throw new Error(`${JSON.stringify(told)}\n${said.join('\n')}`)
    const list = await (await fetch(`${server.url}/v1/sandboxes`, { headers: { authorization: `Bearer ${server.key}` } })).json()
    if (list.sandboxes.length !== 0) throw new Error(`a page of another origin has made a sandbox: ${JSON.stringify(list)}`)
    console.log('ok - a page of another origin may not call')
  } finally {
    await server.close()
  }
}

async function bundle() {
  const { build } = await import(join(root, 'tools/node_modules/esbuild/lib/main.js'))
  const { outputFiles, metafile } = await build({
    entryPoints: [join(root, 'test/page.ts')], bundle: true, platform: 'browser', format: 'iife', globalName: 'checks', target: 'es2022', write: false, metafile: true, logLevel: 'error',
  })
  const inputs = Object.keys(metafile.inputs)
  if (!inputs.some((f) => f.endsWith('dist/esm/web.js')) || inputs.some((f) => f.includes('platform/node'))) throw new Error(`the bundle is not the one for browsers: ${inputs.join(' ')}`)
  return outputFiles[0].text
}

async function servePage(script) {
  const html = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script src="/page.js"></script>'
  const server = createServer((req, res) => {
    const [type, body] = req.url === '/page.js' ? ['text/javascript', script] : ['text/html', html]
    res.writeHead(200, { 'content-type': `${type}; charset=utf-8` }).end(body)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: server.address().port,
    close() {
      server.close()
      server.closeAllConnections?.() // younger than the oldest Node
    },
  }
}

async function startServer(...args) {
  const child = spawn(join(root, '../../scripts/fake-server'), args, { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  const first = await Promise.race([once(createInterface({ input: child.stdout }), 'line'), ended.then(() => undefined)])
  if (!first) throw new Error('the server did not start')
  return {
    ...JSON.parse(first[0]),
    async close() {
      child.stdin.end()
      await ended
    },
  }
}

async function soon(promise, said) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${limit / 1000} s; the browser said:\n${said()}`)), limit)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

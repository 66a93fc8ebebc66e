// What only a real server can show: `npm run test:real`, with RAMET_URL and RAMET_API_KEY of a server whose sandboxes may be used.

import assert from 'node:assert/strict'
import { get } from 'node:http'
import { after, before, test } from 'node:test'

import { Sandbox } from 'ramet'
import { collect, soon } from './harness.js'

let sb: Sandbox
before(async () => {
  sb = await Sandbox.create({ metadata: { of: 'sdk/typescript' }, maxLifetime: 900 })
})
after(async () => {
  await sb.close()
})

test('the variables and processes of a fork are its own from then on', async () => {
  await sb.runCode('import math, time, os; r = 3')
  assert.equal((await sb.runCode('math.pi * r**2')).text, '28.274333882308138')
  const sleeper = await sb.commands.run(['sleep', '600'], { background: true })
  const [child] = await sb.fork(1)
  assert.ok(child)
  try {
    await child.runCode('r = 4')
    assert.deepEqual([(await child.runCode('r')).text, (await sb.runCode('r')).text], ['4', '3'])
    assert.equal((await child.commands.run(['pgrep', '-x', 'sleep'])).stdout.trim(), String(sleeper.pid))
    await child.files.write('only-here', 'x')
    assert.ok((await sb.diff(child)).added.includes('/root/only-here'))
  } finally {
    await child.delete()
  }
  assert.equal(await sleeper.kill(), true)
})

test('it hibernates and wakes by a call, with its variables', async () => {
  await sb.runCode('kept = "yes"')
  assert.equal((await sb.hibernate()).status, 'hibernated')
  assert.equal((await sb.runCode('kept')).text, "'yes'")
  assert.equal((await sb.refresh()).status, 'running')
  const types = (await collect(sb.events({ follow: false }))).map((e) => e.type)
  assert.ok(types.includes('hibernated') && types.includes('waking'))
})

test('languages, contexts and terminals', async () => {
  const js = await sb.contexts.create('javascript')
  await sb.runCode('globalThis.a = 20', { context: js })
  assert.equal((await sb.runCode('a + 1', { context: js })).text, '21')
  let shown = ''
  const pty = await sb.pty.create({ columns: 90, rows: 20, onData: (d) => void (shown += new TextDecoder().decode(d)) })
  await pty.sendInput('stty size; tty; exit 3\n')
  assert.equal((await soon(pty.wait(), 'the end of the shell', 120_000)).code, 3)
  assert.match(shown, /20 90/)
  assert.match(shown, /\/dev\/pts\//)
})

test('a port of it is listed, and reached as a preview', async () => {
  await sb.files.write('/srv/www/index.html', 'from the sandbox')
  const web = await sb.commands.run(['python3', '-m', 'http.server', '8000', '--bind', '127.0.0.1'], { cwd: '/srv/www', background: true })
  await soon((async () => { while (!(await sb.ports.list()).includes(8000)) await new Promise((r) => setTimeout(r, 100)) })(), 'it listens', 120_000)
  const url = await sb.previewUrl(8000)
  assert.match(url, /^https?:\/\/8000-i[0-9a-f]{32}\./)
  // Names below localhost are not resolved everywhere.
  const body = await new Promise<string>((resolve, reject) => {
    get(sb.client.url, { headers: { host: new URL(url).host } }, (res) => {
      let text = ''
      res.on('data', (d) => (text += d)).on('end', () => resolve(text))
    }).on('error', reject)
  })
  assert.equal(body, 'from the sandbox')
  await web.kill()
})

test('its files are streamed, and watched', async () => {
  const watch = await sb.files.watch('/tmp', { recursive: true })
  const big = new Uint8Array(20 << 20).fill(7)
  assert.equal((await sb.files.write('/tmp/deep/big', new Blob([big]))).size, big.length)
  for await (const event of watch) if (event.type === 'change' && event.path === 'deep/big') break
  assert.equal((await sb.files.read('/tmp/deep/big', { format: 'bytes' })).length, big.length)
})

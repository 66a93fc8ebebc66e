// A server with a domain and HTTPS, through E2B's official JavaScript client.
//
// Prints one JSON object per operation, and exits with 1 when one did not do what it should.
// The server is named by E2B_API_KEY and E2B_DOMAIN alone, as a deployed one is.

import { Sandbox } from '@e2b/code-interpreter'
import { eventually, has, main, operation, same } from './_check.mjs'

const domain = process.env.E2B_DOMAIN

/** The status and the body of an answer, with the certificate checked. */
async function get(url, headers = {}) {
  const res = await fetch(url, { headers, signal: AbortSignal.timeout(30_000) })
  return [res.status, await res.text()]
}

operation('domain: create, connect, getInfo', async (s) => {
  same(s.getHost(3000), `3000-${s.sandboxId}.${domain}`, 'the host')
  const again = await Sandbox.connect(s.sandboxId)
  same((await again.getInfo()).sandboxId, s.sandboxId)
  same(await again.isRunning(), true)
})

operation('domain: commands.run', async (s) => {
  same((await s.commands.run('echo $((40 + 2))')).stdout, '42\n')
})

operation('domain: files, downloadUrl, uploadUrl', async (s) => {
  await s.files.write('a file.txt', 'hé')
  same(await s.files.read('a file.txt'), 'hé')
  const url = await s.downloadUrl('a file.txt')
  has(url, `https://49983-${s.sandboxId}.${domain}/files?`)
  same(await get(url), [200, 'hé'], 'the download')
  const form = new FormData()
  form.append('file', new Blob(['by url']), 'name')
  same((await fetch(await s.uploadUrl('b.txt'), { method: 'POST', body: form })).status, 200, 'the upload')
  same(await s.files.read('b.txt'), 'by url')
})

operation('domain: runCode', async (s) => {
  await s.runCode('x = 41')
  const e = await s.runCode("print('out')\nx + 1")
  same([e.text, e.logs.stdout.join(''), e.error ?? null], ['42', 'out\n', null])
  const context = await s.createCodeContext({ cwd: '/tmp' })
  same((await s.runCode('import os\nos.getcwd()', { context })).text, '/tmp')
})

operation('domain: getHost', async (s) => {
  await s.commands.run('mkdir -p /tmp/site && echo hello >/tmp/site/index.html')
  const url = `https://${s.getHost(8123)}/`
  same((await get(url))[0], 502, 'the status before something listens')
  await s.commands.run('python3 -m http.server 8123 --bind 127.0.0.1 --directory /tmp/site', { background: true })
  await eventually('it answers', async () => (await get(url))[0] === 200)
  same(await get(url), [200, 'hello\n'])
})

operation('domain: private ports', async () => {
  const other = await Sandbox.create({ timeoutMs: 60_000, network: { allowPublicTraffic: false } })
  try {
    const url = `https://${other.getHost(8123)}/`
    same((await get(url))[0], 403, 'the status without the token')
    same((await get(url, { 'e2b-traffic-access-token': other.trafficAccessToken }))[0], 502, 'with it, and nothing listens')
    same((await other.runCode('1 + 1')).text, '2', 'the code interpreter')
  } finally {
    await other.kill()
  }
})

await main(() => Sandbox.create({ timeoutMs: 300_000 }))

// The server of this machine is found as the command line finds it, and its key goes to nobody else.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'

import { ConnectionError, Ramet } from 'ramet'

const home = mkdtempSync(join(tmpdir(), 'ramet-home-'))
after(() => rmSync(home, { recursive: true }))
for (const name of ['RAMET_URL', 'RAMET_API_KEY', 'RAMET_CA']) delete process.env[name]
process.env['RAMET_HOME'] = home

const stat = readFileSync('/proc/self/stat', 'utf8')
const me = {
  pid: process.pid,
  start_ticks: Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]),
  boot_id: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
}
const write = (info: object) => writeFileSync(join(home, 'server.json'), JSON.stringify(info))
const asked: (string | undefined)[] = []
const answer: RequestListener = (req, res) => {
  asked.push(req.headers.authorization)
  res.end(JSON.stringify({ version: 't', started_at: '2026-01-02T03:04:05Z' }))
}
const keyOf = async (client: Ramet) => {
  await client.info()
  client.close()
  return asked.at(-1)
}

test('over HTTP, on a loopback address', async (t) => {
  const server = createServer(answer).listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}`
  writeFileSync(join(home, 'key'), 'local-key\n')

  write({ ...me, url })
  assert.equal(await keyOf(new Ramet()), 'Bearer local-key')
  assert.equal(await keyOf(new Ramet({ url: `http://localhost:${port}` })), 'Bearer local-key')
  assert.equal(await keyOf(new Ramet({ apiKey: 'mine' })), 'Bearer mine')
  assert.equal(await keyOf(new Ramet({ fetch: (u, init) => fetch(u, init), url })), undefined)
  process.env['RAMET_API_KEY'] = 'from-env'
  assert.equal(await keyOf(new Ramet()), 'Bearer from-env')
  delete process.env['RAMET_API_KEY']

  // Another process may have that pid by now, or that port.
  for (const other of [{ start_ticks: me.start_ticks + 1 }, { boot_id: 'of an earlier boot' }, { pid: 1 << 30 }]) {
    write({ ...me, url, ...other })
    assert.equal(new Ramet().url, 'http://127.0.0.1:7070')
    assert.equal(await keyOf(new Ramet({ url })), undefined, JSON.stringify(other))
  }
  write({ ...me, url: 'http://127.0.0.1:1' })
  assert.equal(await keyOf(new Ramet({ url })), undefined)
  for (const junk of ['', '{', 'null', '{"url":"nonsense"}']) {
    writeFileSync(join(home, 'server.json'), junk)
    assert.equal(new Ramet().url, 'http://127.0.0.1:7070')
  }
})

test('over HTTPS, by the certificate in server.json and by no other', async (t) => {
  const make = (name: string) => {
    const [key, cert] = [join(home, `${name}.key`), join(home, `${name}.crt`)]
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1', '-subj', `/CN=${name}`, '-addext', `subjectAltName=DNS:${name}`, '-keyout', key, '-out', cert], { stdio: 'ignore' })
    return { key: readFileSync(key), cert: readFileSync(cert), file: cert }
  }
  const own = make('local.ramet.invalid')
  const other = make('localhost')
  const server = createTlsServer(own, answer).listen(0, '127.0.0.1')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  await once(server, 'listening')
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  write({ ...me, url, local_certificate: own.cert.toString() })
  assert.equal(await keyOf(new Ramet()), 'Bearer local-key')
  write({ ...me, url, local_certificate: other.cert.toString() })
  await assert.rejects(new Ramet().info(), (err) => err instanceof ConnectionError && !err.mayHaveRun)

  server.setSecureContext(other)
  writeFileSync(join(home, 'server.json'), '')
  const named = url.replace('127.0.0.1', 'localhost')
  await assert.rejects(new Ramet({ url: named, apiKey: 'k' }).info(), ConnectionError)
  process.env['RAMET_CA'] = other.file
  assert.equal(await keyOf(new Ramet({ url: named, apiKey: 'k' })), 'Bearer k')
  process.env['RAMET_CA'] = '/nowhere'
  assert.throws(() => new Ramet({ url: named }), /RAMET_CA cannot be read/)
})

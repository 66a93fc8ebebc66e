// Files through E2B's official JavaScript client.
//
// Prints one JSON object per operation, and exits with 1 when one did not do what it should.
// The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.

import { randomBytes, randomUUID } from 'node:crypto'
import * as e2b from 'e2b'
import { eventually, has, main, operation, raises, same, Skip } from './_check.mjs'

const { Sandbox } = e2b
const NotFound = e2b.FileNotFoundError ?? e2b.NotFoundError
const bytes = Uint8Array.from({ length: 10240 }, (_, i) => i % 256)

const fresh = () => `/home/user/${randomUUID()}`
const shell = async (s, command) => (await s.commands.run(command)).stdout
const equal = (got, want) => same(Buffer.compare(Buffer.from(got), Buffer.from(want)), 0, 'the content')

operation('files.write, read', async (s) => {
  const path = fresh() + '.txt'
  const info = await s.files.write(path, 'héllo ☃\n')
  same([info.path, info.name, info.type], [path, path.split('/').pop(), 'file'])
  same(await s.files.read(path), 'héllo ☃\n')
  await s.files.write(path, 'shorter')
  same(await s.files.read(path), 'shorter')
  same(await shell(s, `stat -c '%U %G %a' ${path}`), 'user user 644\n')
})

operation('files.write, read: bytes', async (s) => {
  const path = fresh()
  await s.files.write(path, bytes.buffer)
  equal(await s.files.read(path, { format: 'bytes' }), bytes)
  const blob = await s.files.read(path, { format: 'blob' })
  equal(await blob.arrayBuffer(), bytes)
  await s.files.write(path, new Blob([bytes, bytes]))
  same((await s.files.read(path, { format: 'bytes' })).length, 2 * bytes.length)
  await s.files.write(path, '')
  same(await s.files.read(path), '', 'an empty file')
  same((await s.files.read(path, { format: 'bytes' })).length, 0, 'an empty file')
})

operation('files.read: stream', async (s) => {
  const path = fresh()
  await s.files.write(path, new Blob(Array(100).fill(bytes)))
  const got = []
  for await (const chunk of await s.files.read(path, { format: 'stream' })) got.push(chunk)
  equal(Buffer.concat(got), Buffer.concat(Array(100).fill(bytes)))
})

operation('files.write: a stream', async (s) => {
  const path = fresh()
  await s.files.write(path, new Blob([bytes, bytes]).stream())
  equal(await s.files.read(path, { format: 'bytes' }), Buffer.concat([bytes, bytes]))
})

operation('files.write: directories and odd names', async (s) => {
  const base = fresh()
  for (const name of ['a/b/c.txt', 'with space/ ünï 日本.txt', "quote'd & $HOME;.txt", '%41+b.txt']) {
    same((await s.files.write(`${base}/${name}`, name)).path, `${base}/${name}`)
    same(await s.files.read(`${base}/${name}`), name)
  }
  same(await shell(s, `stat -c %U ${base} ${base}/a ${base}/a/b`), 'user\nuser\nuser\n')
})

operation('files.write: anywhere', async (s) => {
  const path = `/srv/${randomUUID()}/file`
  await s.files.write(path, 'x')
  same(await shell(s, `stat -c %U ${path} && echo more >> ${path} && cat ${path}`), 'user\nxmore\n')
})

operation('files: relative paths, root', async (s) => {
  const name = randomUUID()
  same((await s.files.write(`${name}/x.txt`, 'rel')).path, `/home/user/${name}/x.txt`)
  same(await s.files.read(`~/${name}/x.txt`), 'rel')
  same((await s.files.write(name, 'r', { user: 'root' })).path, `/root/${name}`)
  same(await s.files.read(name, { user: 'root' }), 'r')
})

operation('files.write: several', async (s) => {
  const base = fresh()
  const entries = [0, 1, 2].map((i) => ({ path: `${base}/${i}/f ü.txt`, data: `content ${i}` }))
  const infos = await s.files.write(entries)
  same(infos.map((i) => i.path), entries.map((e) => e.path))
  for (const e of entries) same(await s.files.read(e.path), e.data)
  if (s.files.writeFiles) same((await s.files.writeFiles(entries)).length, 3)
})

operation('files: gzip', async (s) => {
  const path = fresh()
  const text = 'again '.repeat(10_000)
  await s.files.write(path, text, { gzip: true })
  same((await s.files.read(path, { gzip: true })) === text, true, 'the content')
  same(await shell(s, `stat -c %s ${path}`), '60000\n')
})

operation('files: metadata', async (s) => {
  const path = fresh()
  const info = await s.files.write(path, 'x', { metadata: { Author: 'me', 'run-id': '7' } })
  if (info.metadata === undefined && !String(s.files.write).includes('metadata')) throw new Skip()
  same([info.metadata.author, info.metadata['run-id']], ['me', '7'])
  same((await s.files.getInfo(path)).metadata.author, 'me')
})

operation('files.read: errors', async (s) => {
  has((await raises(() => s.files.read('/no/such/file'), NotFound)).message, '/no/such/file')
  await raises(() => s.files.read('/etc'), e2b.InvalidArgumentError)
  await raises(() => s.files.write('/etc', 'x'), e2b.InvalidArgumentError)
  await raises(() => s.files.read('/etc/passwd', { user: 'nobody-of-that-name' }), e2b.AuthenticationError)
})

operation('files.list', async (s) => {
  const base = fresh()
  for (const name of ['b.txt', 'a.txt', 'd/e.txt', 'd/f/g.txt']) await s.files.write(`${base}/${name}`, '12345')
  const entries = (await s.files.list(base)).sort((a, b) => (a.path < b.path ? -1 : 1))
  same(entries.map((e) => [e.name, e.type, e.path]), [['a.txt', 'file', `${base}/a.txt`], ['b.txt', 'file', `${base}/b.txt`], ['d', 'dir', `${base}/d`]])
  same([entries[0].size, entries[0].owner, entries[0].permissions], [5, 'user', '-rw-r--r--'])
  for (const [depth, n] of [[1, 3], [2, 5], [3, 6], [9, 6]]) same((await s.files.list(base, { depth })).length, n, `depth ${depth}`)
  await raises(() => s.files.list(base, { depth: 0 }), e2b.InvalidArgumentError)
  await raises(() => s.files.list(`${base}/none`), NotFound)
  await raises(() => s.files.list(`${base}/a.txt`), e2b.InvalidArgumentError)
})

operation('files.exists', async (s) => {
  same([await s.files.exists('/etc/passwd'), await s.files.exists('/etc'), await s.files.exists('/none')], [true, true, false])
})

operation('files.getInfo', async (s) => {
  const base = fresh()
  await s.files.write(`${base}/file`, '123')
  await shell(s, `cd ${base} && chmod 750 file && ln -s file link`)
  const i = await s.files.getInfo(`${base}/file`)
  same([i.name, i.type, i.path, i.size, i.mode, i.permissions, i.owner, i.group], ['file', 'file', `${base}/file`, 3, 0o750, '-rwxr-x---', 'user', 'user'])
  same(Math.abs(i.modifiedTime.getTime() / 1000 - Number(await shell(s, 'date +%s'))) < 60, true, 'the time')
  same((await s.files.getInfo(base)).type, 'dir')
  same((await s.files.getInfo(`${base}/link`)).symlinkTarget, `${base}/file`)
  await raises(() => s.files.getInfo(`${base}/none`), NotFound)
})

operation('files.makeDir', async (s) => {
  const path = fresh() + '/x/y'
  same([await s.files.makeDir(path), await s.files.makeDir(path)], [true, false])
  same(await shell(s, `stat -c '%U %F' ${path}`), 'user directory\n')
})

operation('files.rename, remove', async (s) => {
  const [a, b] = [fresh(), fresh()]
  await s.files.write(a, 'a')
  same((await s.files.rename(a, b)).path, b)
  same([await s.files.exists(a), await s.files.read(b)], [false, 'a'])
  await raises(() => s.files.rename(a, b), NotFound)
  await s.files.write(`${a}/x/y`, 'x')
  for (const path of [b, a, a]) await s.files.remove(path)
  same([await s.files.exists(a), await s.files.exists(b)], [false, false])
})

/** Watches, and waits for what is asked for. */
async function watch(s, path, opts) {
  const events = []
  const handle = await s.files.watchDir(path, (e) => void events.push(e), opts)
  const saw = (type, name) => eventually(`${type} of ${name}`, () => events.find((e) => e.type === type && e.name === name))
  return { saw, stop: () => handle.stop() }
}

operation('files.watchDir', async (s) => {
  const base = fresh()
  await s.files.makeDir(base)
  const w = await watch(s, base)
  await shell(s, `cd ${base} && echo 1 > made && echo 2 >> made && chmod 600 made && mv made moved && rm moved`)
  for (const [type, name] of [['create', 'made'], ['write', 'made'], ['chmod', 'made'], ['rename', 'made'], ['create', 'moved'], ['remove', 'moved']]) await w.saw(type, name)
  await w.stop()
})

operation('files.watchDir: recursive', async (s) => {
  const base = fresh()
  await s.files.makeDir(`${base}/old`)
  const w = await watch(s, base, { recursive: true })
  await shell(s, `echo 1 > ${base}/old/a; mkdir -p ${base}/n/m && echo 1 > ${base}/n/m/b`)
  for (const name of ['old/a', 'n', 'n/m/b']) await w.saw('create', name)
  await w.stop()
})

operation('files.watchDir: errors', async (s) => {
  await raises(() => watch(s, '/no/such/dir'), NotFound)
  await raises(() => watch(s, '/etc/passwd'), e2b.InvalidArgumentError)
})

operation('downloadUrl, uploadUrl', async (s) => {
  const path = fresh() + '/signed file.txt'
  const form = new FormData()
  form.append('file', new Blob(['by url']), 'name')
  same((await fetch(await s.uploadUrl(path), { method: 'POST', body: form })).status, 200)
  same(await s.files.read(path), 'by url')
  const url = await s.downloadUrl(path)
  same(await (await fetch(url)).text(), 'by url')
  same((await fetch(url.replace('signature=v1_', 'signature=v1_A'))).status, 401, 'a wrong signature')
  same((await fetch(await s.uploadUrl(path))).status, 401, 'reading with a URL for writing')
  same(await (await fetch(await s.downloadUrl(path, { useSignatureExpiration: 60 }))).text(), 'by url')
  same((await fetch(await s.downloadUrl(path, { useSignatureExpiration: -60 }))).status, 401, 'a URL whose time is over')
})

operation('files: 48 MiB there and back', async (s) => {
  const path = fresh()
  const part = randomBytes(1 << 20)
  await s.files.write(path, new Blob(Array(48).fill(part)), { requestTimeoutMs: 110_000 })
  const got = await s.files.read(path, { format: 'bytes', requestTimeoutMs: 110_000 })
  same(got.length, 48 << 20)
  for (let i = 0; i < 48; i++) equal(got.subarray(i << 20, (i + 1) << 20), part)
})

operation('isRunning', async (s) => same(await s.isRunning(), true))

await main(() => Sandbox.create('base', { timeoutMs: 300_000 }))

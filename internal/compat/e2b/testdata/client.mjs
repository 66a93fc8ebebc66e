// Exercises the surfaces inside a sandbox with E2B's official client, on fake machines.

import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import * as e2b from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const s = await Sandbox.create('base', { envs: { HOME: '/nonexistent' } })
assert.equal(await s.isRunning(), true)

let r = await s.commands.run('echo $A; echo err >&2', { envs: { A: 'x ☃' } })
assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['x ☃\n', 'err\n', 0])
await assert.rejects(s.commands.run('exit 3'), (e) => e instanceof e2b.CommandExitError && e.exitCode === 3)
await assert.rejects(s.commands.run('sleep 60', { timeoutMs: 1000 }), e2b.TimeoutError)
let h = await s.commands.run('read l; echo got $l', { background: true, stdin: true })
assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
await h.disconnect()
h = await s.commands.connect(h.pid)
await s.commands.sendStdin(h.pid, 'it\n')
assert.equal((await h.wait()).stdout, 'got it\n')
h = await s.commands.run('sleep 60', { background: true })
assert.deepEqual([await s.commands.kill(h.pid), await s.commands.kill(h.pid)], [true, false])

assert.equal((await s.files.write('/w/a b/ü.txt', 'text')).path, '/w/a b/ü.txt')
assert.equal(await s.files.read('/w/a b/ü.txt'), 'text')
await s.files.write('/w/empty', '')
assert.equal(await s.files.read('/w/empty'), '')
await s.files.write('/w/stream', new Blob(['streamed']).stream())
assert.equal(await s.files.read('/w/stream'), 'streamed')
await s.files.write([0, 1, 2].map((i) => ({ path: `/w/s/${i}`, data: String(i) })))
assert.deepEqual((await s.files.list('/w/s')).map((e) => e.name), ['0', '1', '2'])
assert.deepEqual([await s.files.makeDir('/w/d'), await s.files.makeDir('/w/d')], [true, false])
assert.equal((await s.files.rename('/w/empty', '/w/d/e')).path, '/w/d/e')
await s.files.remove('/w/d')
await assert.rejects(s.files.read('/none'), e2b.NotFoundError)
await assert.rejects(s.files.read('/w'), e2b.InvalidArgumentError)

const seen = []
const w = await s.files.watchDir('/w', (e) => void seen.push(e.name))
await s.files.write('/w/new', 'x')
for (const end = Date.now() + 30_000; !seen.includes('new'); await sleep(50)) assert.ok(Date.now() < end, String(seen))
await w.stop()

const execution = await s.runCode("print('hé ☃ ' * 5000)")
assert.equal(execution.logs.stdout.join(''), 'hé ☃ '.repeat(5000) + '\n')
await assert.rejects(s.runCode('import time; time.sleep(60)', { timeoutMs: 1000 }))

await s.kill()
assert.equal(await s.isRunning(), false)
console.log('all is well')

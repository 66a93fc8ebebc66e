// Commands and terminals through E2B's official JavaScript client.
//
// Prints one JSON object per operation, and exits with 1 when one did not do what it should.
// The server is named by E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL.

import * as e2b from 'e2b'
import { eventually, has, main, operation, raises, same, Skip } from './_check.mjs'

const { Sandbox, CommandExitError } = e2b

operation('commands.run', async (s) => {
  const r = await s.commands.run('echo out; echo err >&2')
  same([r.stdout, r.stderr, r.exitCode, r.error ?? null], ['out\n', 'err\n', 0, null])
})

operation('commands.run: exit code', async (s) => {
  const e = await raises(() => s.commands.run('echo before; echo why >&2; exit 42'), CommandExitError)
  same([e.exitCode, e.stdout, e.stderr, e.error], [42, 'before\n', 'why\n', 'exit status 42'])
})

operation('commands.run: environment', async (s) => {
  same((await s.commands.run('echo "$GIVEN/$MINE/$HOME/$USER"', { envs: { MINE: 'a b' } })).stdout, 'of create/a b//home/user/user\n')
  same((await s.commands.run('echo "$MINE"')).stdout, '\n', "the next command's")
})

operation('commands.run: user', async (s) => {
  same((await s.commands.run('id -un; id -gn; pwd; echo $HOME')).stdout, 'user\nuser\n/home/user\n/home/user\n')
  same((await s.commands.run('id -un; id -u; pwd; echo $HOME', { user: 'root' })).stdout, 'root\n0\n/root\n/root\n')
})

operation('commands.run: unknown user', async (s) => {
  await raises(() => s.commands.run('true', { user: 'nobody-of-that-name' }), e2b.AuthenticationError)
})

operation('commands.run: cwd', async (s) => {
  same((await s.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  await s.commands.run('mkdir -p below')
  same((await s.commands.run('pwd', { cwd: 'below' })).stdout, '/home/user/below\n')
})

operation('commands.run: cwd that is missing', async (s) => {
  const e = await raises(() => s.commands.run('pwd', { cwd: '/no/such/place' }), e2b.InvalidArgumentError)
  has(e.message, '/no/such/place')
})

operation('commands.run: callbacks', async (s) => {
  const out = []
  const err = []
  const r = await s.commands.run('echo 1; echo 2 >&2; sleep 0.3; echo 3', { onStdout: (d) => out.push(d), onStderr: (d) => err.push(d) })
  same([out.join(''), err.join(''), r.stdout], ['1\n3\n', '2\n', '1\n3\n'])
  if (out.length < 2) throw new Error(`it was not streamed: ${out}`)
})

operation('commands.run: timeout', async (s) => {
  await raises(() => s.commands.run('sleep 97', { timeoutMs: 1000 }), e2b.TimeoutError)
  await eventually('the command has ended', async () => !(await s.commands.list()).some((p) => p.args.some((a) => a.includes('sleep 97'))))
})

operation('commands.run: large and odd output', async (s) => {
  same((await s.commands.run("head -c 4000000 /dev/zero | tr '\\0' x")).stdout.length, 4000000)
  same((await s.commands.run(String.raw`printf 'h\303\251 \342\230\203 \360\237\230\200'`)).stdout, 'hé ☃ 😀')
})

operation('commands.run: children that stay', async (s) => {
  same((await s.commands.run('sleep 60 & echo done', { timeoutMs: 20_000 })).stdout, 'done\n')
})

operation('commands.run in background, wait', async (s) => {
  const h = await s.commands.run('sleep 0.2; echo late; exit 3', { background: true })
  if (!(h.pid > 0)) throw new Error(`pid ${h.pid}`)
  const e = await raises(() => h.wait(), CommandExitError)
  same([e.exitCode, e.stdout], [3, 'late\n'])
})

operation('commands.list', async (s) => {
  const h = await s.commands.run('sleep 61', { background: true, envs: { IN_LIST: 'yes' }, cwd: '/tmp' })
  const p = (await s.commands.list()).filter((p) => p.pid === h.pid)
  same(p.length, 1)
  same([p[0].cmd, p[0].args.slice(0, 2), p[0].cwd, p[0].envs.IN_LIST], ['/bin/bash', ['-l', '-c'], '/tmp', 'yes'])
  await h.kill()
})

operation('commands.kill', async (s) => {
  const h = await s.commands.run('sleep 62', { background: true })
  same(await s.commands.kill(h.pid), true)
  await raises(() => h.wait(), CommandExitError)
  same(await s.commands.kill(h.pid), false, 'a second kill')
})

operation('commands.connect', async (s) => {
  const h = await s.commands.run('read line; echo got $line; exit 5', { background: true, stdin: true })
  await h.disconnect()
  const again = await s.commands.connect(h.pid)
  same(again.pid, h.pid)
  await s.commands.sendStdin(h.pid, 'after all\n')
  const e = await raises(() => again.wait(), CommandExitError)
  same([e.exitCode, e.stdout], [5, 'got after all\n'])
})

operation('commands.connect: unknown', async (s) => {
  await raises(() => s.commands.connect(999999), e2b.NotFoundError)
})

operation('commands.sendStdin', async (s) => {
  const h = await s.commands.run('read a; read b; echo $b $a', { background: true, stdin: true })
  await s.commands.sendStdin(h.pid, 'one\n')
  await s.commands.sendStdin(h.pid, 'zwölf\n')
  same((await h.wait()).stdout, 'zwölf one\n')
  await raises(() => s.commands.sendStdin(h.pid, 'x'), e2b.NotFoundError)
})

operation('commands.closeStdin', async (s) => {
  if (!s.commands.closeStdin) throw new Skip()
  const h = await s.commands.run('wc -c', { background: true, stdin: true })
  await s.commands.sendStdin(h.pid, '12345')
  await s.commands.closeStdin(h.pid)
  same((await h.wait()).stdout.trim(), '5')
})

operation('commands.run: stdin is empty by default', async (s) => {
  same((await s.commands.run('cat; echo end', { timeoutMs: 20_000 })).stdout, 'end\n')
})

operation('commands: many at once', async (s) => {
  const got = await Promise.all(Array.from({ length: 12 }, (_, i) => s.commands.run(`sleep 0.1; echo ${i}`)))
  same(got.map((r) => r.stdout), got.map((_, i) => `${i}\n`))
})

/** Opens a terminal whose output is collected. */
async function terminal(s, opts = {}) {
  const t = { output: '' }
  const decoder = new TextDecoder()
  const onData = (d) => void (t.output += decoder.decode(d, { stream: true }))
  t.handle = await s.pty.create({ cols: 101, rows: 33, onData, timeoutMs: 60_000, ...opts })
  t.type = (text) => s.pty.sendInput(t.handle.pid, new TextEncoder().encode(text))
  t.says = (text) => eventually(`the terminal says ${text} in ${JSON.stringify(t.output.slice(-300))}`, () => t.output.includes(text))
  return t
}

operation('pty.create, sendInput, resize', async (s) => {
  const t = await terminal(s, { envs: { PTY_ENV: 'of the terminal' }, cwd: '/tmp' })
  await t.type('stty size; echo $PTY_ENV-$TERM-$(pwd)-$(id -un)\n')
  await t.says('33 101')
  await t.says('of the terminal-xterm-256color-/tmp-user')
  await s.pty.resize(t.handle.pid, { cols: 66, rows: 20 })
  await t.type('stty size\n')
  await t.says('20 66')
  await t.type('echo beg$((4-3))n; sleep 100\n')
  await t.says('beg1n')
  await t.type('\x03')
  await t.type('echo int$((40+2))\n')
  await t.says('int42')
  same(await s.pty.kill(t.handle.pid), true)
  same(await s.pty.kill(t.handle.pid), false, 'a second kill')
})

operation('pty: exit', async (s) => {
  const t = await terminal(s)
  await t.type('exit 7\n')
  const e = await raises(() => t.handle.wait(), CommandExitError)
  same(e.exitCode, 7)
})

operation('pty.connect', async (s) => {
  if (!s.pty.connect) throw new Skip()
  const t = await terminal(s)
  await t.handle.disconnect()
  let output = ''
  await s.pty.connect(t.handle.pid, { onData: (d) => void (output += new TextDecoder().decode(d)) })
  await t.type('echo back$((1+1))\n')
  await eventually('the terminal says back2', () => output.includes('back2'))
  same(await s.pty.kill(t.handle.pid), true)
})

await main(() => Sandbox.create('base', { timeoutMs: 300_000, envs: { GIVEN: 'of create' } }))

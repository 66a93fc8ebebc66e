// A program as users write it, against the installed package and with the strictest settings. See scripts/test-install.mjs.

import { NotFoundError, QuotaError, Ramet, RametError, Sandbox, type Execution, type FileInfo, type SandboxInfo } from 'ramet'

async function main(): Promise<void> {
  const sandbox = await Sandbox.create({ metadata: { from: 'sample' }, idleTimeout: 60 })
  try {
    const run: Execution = await sandbox.runCode('6 * 7', { onStdout: (text) => console.log(text), timeout: 30 })
    const answer: string | undefined = run.text
    const command = await sandbox.commands.run(['echo', 'hi'])
    const background = await sandbox.commands.run('sleep 60', { background: true })
    await background.kill()
    const info: FileInfo = await sandbox.files.write('a.txt', 'text')
    const bytes: Uint8Array = await sandbox.files.read('a.txt', { format: 'bytes' })
    const stream: ReadableStream<Uint8Array> = await sandbox.files.read('a.txt', { format: 'stream' })
    await stream.cancel()
    for await (const event of sandbox.runCodeStream('print(1)')) {
      switch (event.type) {
        case 'stdout':
          console.log(event.text, event.bytes.byteLength)
          break
        case 'result':
          console.log(event.text)
          break
        case 'exit':
          console.log(event.code)
          break
        case 'started':
        case 'stderr':
        case 'error':
        case 'truncated':
          break
        default: {
          const never: never = event
          throw never
        }
      }
    }
    const [child] = await sandbox.fork(1)
    await child?.delete()
    for await (const one of Sandbox.list({ metadata: { from: 'sample' } })) {
      const record: SandboxInfo = one
      const made: Date = record.createdAt
      console.log(record.id, made.getTime())
    }
    const health = await Ramet.shared().api.request('get', '/v1/sandboxes/{id}', { path: { id: sandbox.id } })
    console.log(health.status, answer, command.stdout, info.size, bytes.length)
    // @ts-expect-error there is no such path
    await Ramet.shared().api.request('get', '/v1/nothing')
  } catch (err) {
    if (!(err instanceof NotFoundError)) throw err
    if (err instanceof QuotaError) console.log(err.retryAfter)
    const base: RametError = err
    console.log(base.code)
  } finally {
    await sandbox.close()
  }
  await using other = await Sandbox.create()
  console.log('done', answerOf(await other.runCode('6 * 7')))
}

function answerOf(run: Execution): string {
  return run.check().text ?? ''
}

main().catch((err: unknown) => {
  console.error(err)
  process.exitCode = 1
})

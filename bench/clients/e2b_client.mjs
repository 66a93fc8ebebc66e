// E2B's code interpreter for JavaScript, on the same template as the others.
import readline from 'node:readline'
import { Sandbox } from '@e2b/code-interpreter'

async function run(s) {
  const out = (await s.runCode('print(1)')).logs.stdout.join('')
  if (out.trim() !== '1') throw new Error(`print(1) printed ${JSON.stringify(out)}`)
}

async function trip() {
  const s = await Sandbox.create('default')
  await run(s)
  await s.kill()
}

const warm = await Sandbox.create('default')
const what = { hot: () => run(warm), trip }
for await (const line of readline.createInterface({ input: process.stdin })) {
  const begin = performance.now()
  await what[line.trim()]()
  console.log(performance.now() - begin)
}
await warm.kill()

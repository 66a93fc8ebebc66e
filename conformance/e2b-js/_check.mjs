// What the programs of this folder share: operations, their results, and assertions on them.

import { setTimeout as sleep } from 'node:timers/promises'

/** The installed version has no such call. */
export class Skip extends Error {}
/** The server says clearly that it cannot. */
export class NotYet extends Error {}
/** It works, in another way than on E2B's own servers. The text says how. */
export class Differs extends Error {}

const operations = []

/** Enters a function that gets a sandbox as the program's next operation. */
export const operation = (name, f) => operations.push([name, f])

export function same(got, want, what = 'got') {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
  if (a !== b) throw new Error(`${what}: ${String(a).slice(0, 500)}, want ${String(b).slice(0, 500)}`)
}

export function has(text, part) {
  if (!String(text).includes(part)) throw new Error(`${JSON.stringify(part)} is not in ${JSON.stringify(String(text).slice(0, 500))}`)
}

/** The error of one of the kinds that f throws. */
export async function raises(f, ...kinds) {
  try {
    await f()
  } catch (e) {
    if (kinds.some((k) => e instanceof k)) return e
    throw e
  }
  throw new Error(`no ${kinds[0].name} was thrown`)
}

/** Waits until cond holds. */
export async function eventually(what, cond, within = 20_000) {
  for (const end = Date.now() + within; ; await sleep(50)) {
    const got = await cond()
    if (got) return got
    if (Date.now() > end) throw new Error(`after ${within} ms still not: ${what}`)
  }
}

function report(operation, result, detail = '') {
  console.log(JSON.stringify({ operation, group: operation.split(/[.: ]/)[0], result, detail }))
}

async function one(name, f, sandbox) {
  let timer
  const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error('no end within 120 s')), 120_000)))
  try {
    await Promise.race([f(sandbox), late])
    report(name, 'works')
  } catch (e) {
    if (e instanceof Skip) return 0
    if (e instanceof NotYet) return report(name, 'not_yet', e.message), 0
    if (e instanceof Differs) return report(name, 'differs', e.message), 0
    console.error(name, e)
    report(name, 'failed', `${e?.name}: ${e?.message}`.slice(0, 400))
    return 1
  } finally {
    clearTimeout(timer)
  }
  return 0
}

/** Runs all operations in a sandbox, and ends the program: with 1 when one has failed. */
export async function main(create) {
  const only = process.argv.slice(2)
  let failed = 0
  try {
    const sandbox = await create()
    try {
      for (const [name, f] of operations) if (only.length === 0 || only.includes(name)) failed += await one(name, f, sandbox)
    } finally {
      await sandbox.kill()
    }
  } catch (e) {
    console.error(e)
    report('sandbox.create', 'failed', `${e?.name}: ${e?.message}`.slice(0, 400))
    failed++
  }
  process.exit(failed ? 1 : 0)
}

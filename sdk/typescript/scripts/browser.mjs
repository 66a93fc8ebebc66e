// A Chromium without a window, driven by its DevTools protocol over a pipe: it ends with the program that
// started it. RAMET_CHROMIUM names the program; without it the usual names are tried.

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const names = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome']

function find() {
  const named = process.env.RAMET_CHROMIUM
  for (const name of named ? [named] : names) {
    const { status, stdout } = spawnSync(name, ['--version'], { encoding: 'utf8', timeout: 30_000 })
    if (status === 0) return { name, version: stdout.trim() }
  }
  throw new Error(named
    ? `RAMET_CHROMIUM is ${named}, which does not run`
    : `no browser is installed: this test needs one of ${names.join(', ')}; as root: scripts/install-packages chromium-headless-shell (305 MB), or name one by RAMET_CHROMIUM`)
}

export class Browser {
  #child
  #ended
  #profile
  #last = 0
  #calls = new Map()
  #pages = new Map()
  #broken
  #stderr = ''

  /** Starts one. What it is called and its version are in `version`. */
  static async start() {
    const { name, version } = find()
    const browser = new Browser(name)
    browser.version = version
    try {
      await browser.#call('Browser.getVersion')
    } catch (err) {
      await browser.close()
      throw err
    }
    return browser
  }

  constructor(name) {
    this.#profile = mkdtempSync(join(tmpdir(), 'ramet-browser-'))
    const args = [
      '--headless', '--remote-debugging-pipe', `--user-data-dir=${this.#profile}`, '--no-first-run', '--no-default-browser-check',
      '--disable-gpu', '--disable-extensions', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      // A container's /dev/shm is often too small.
      '--disable-dev-shm-usage',
      // Its sandbox does not work as root. It loads nothing but the pages of these tests.
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
    ]
    // A process group of its own: the program is often a script around the browser.
    this.#child = spawn(name, args, { stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'], detached: true })
    this.#ended = once(this.#child, 'close').then(() => this.#fail(new Error(`the browser has ended: ${this.#stderr}`)), (err) => this.#fail(err))
    this.#child.stderr.setEncoding('utf8').on('data', (text) => (this.#stderr = (this.#stderr + text).slice(-4000)))
    this.#child.stdio[3].on('error', () => {}) // its end is told by 'close'
    let rest = ''
    this.#child.stdio[4].setEncoding('utf8').on('data', (text) => {
      const messages = (rest + text).split('\0')
      rest = messages.pop()
      for (const message of messages) this.#take(JSON.parse(message))
    })
  }

  #take({ id, result, error, method, params, sessionId }) {
    if (id === undefined) {
      this.#pages.get(sessionId)?.(method, params)
      return
    }
    const call = this.#calls.get(id)
    this.#calls.delete(id)
    if (error) call?.reject(new Error(error.message))
    else call?.resolve(result)
  }

  #fail(err) {
    this.#broken = err
    for (const { reject } of this.#calls.values()) reject(err)
    this.#calls.clear()
  }

  #call(method, params = {}, sessionId = undefined) {
    if (this.#broken) return Promise.reject(this.#broken)
    const id = ++this.#last
    const answer = new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject }))
    this.#child.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0')
    return answer
  }

  /**
   * Opens a page and returns what the promise of `expression` in it gives. What the page and the browser said of it
   * is in the error when there is none, and is given to `said` line by line.
   */
  async run(url, expression, said = () => {}) {
    const { targetId } = await this.#call('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await this.#call('Target.attachToTarget', { targetId, flatten: true })
    let loaded
    const load = new Promise((resolve) => (loaded = resolve))
    this.#pages.set(sessionId, (method, params) => {
      if (method === 'Page.loadEventFired') loaded()
      else if (method === 'Runtime.exceptionThrown') said(`thrown: ${params.exceptionDetails.exception?.description ?? params.exceptionDetails.text}`)
      else if (method === 'Runtime.consoleAPICalled') said(`console: ${params.args.map((a) => a.value ?? a.description).join(' ')}`)
      else if (method === 'Log.entryAdded') said(`browser: ${params.entry.text}`)
    })
    try {
      for (const domain of ['Page', 'Runtime', 'Log']) await this.#call(`${domain}.enable`, {}, sessionId)
      const { errorText } = await this.#call('Page.navigate', { url }, sessionId)
      if (errorText) throw new Error(`${url}: ${errorText}`)
      await Promise.race([load, this.#ended])
      const { result, exceptionDetails } = await this.#call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true }, sessionId)
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
      return result.value
    } finally {
      await this.#call('Target.closeTarget', { targetId }).catch(() => {}) // the browser may be gone
      this.#pages.delete(sessionId)
    }
  }

  async close() {
    this.#child.stdio[3].end() // it ends with the pipe
    const kill = setTimeout(() => process.kill(-this.#child.pid, 'SIGKILL'), 10_000)
    await this.#ended
    clearTimeout(kill)
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  }
}

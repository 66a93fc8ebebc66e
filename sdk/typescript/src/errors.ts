// What can go wrong, as classes. Every message says what to do; `code` is the server's
// stable word, `hint` what this package adds to the server's sentence.

import type { Execution } from './execution.js'
import type { CommandResult } from './commands.js'

// The ESM and the CJS build are two copies of these classes. An error of either is an
// instance of both: what counts is the names in this property, not the prototype.
const kinds = Symbol.for('ramet.error.kinds')

export interface ErrorDetails {
  /** A stable word for programs. */
  code?: string
  /** The HTTP status, when there was an answer. */
  status?: number
  /** Names the call in the server's log. */
  requestId?: string
  /** What to do, when the sentence of the server does not say it. */
  hint?: string
  cause?: unknown
}

/** The base of all errors that this package makes. An aborted call rejects with its signal's reason instead. */
export class RametError extends Error {
  static readonly kind: string = 'RametError'
  /** A stable word for programs. */
  readonly code: string
  /** The HTTP status; 0 when there was no answer, or when the error came inside a stream. */
  readonly status: number
  /** Names the call in the server's log; "" when there was no answer. */
  readonly requestId: string
  /** What to do, as far as the server's sentence does not say it; may be "". */
  readonly hint: string

  constructor(message: string, details: ErrorDetails = {}) {
    const tail = details.requestId ? ` (request ${details.requestId})` : ''
    super(sentence(message, details.hint) + tail, details.cause === undefined ? undefined : { cause: details.cause })
    const own: string[] = []
    for (let c = new.target as { kind?: string }; typeof c?.kind === 'string'; c = Object.getPrototypeOf(c)) own.push(c.kind)
    Object.defineProperty(this, kinds, { value: own })
    Object.defineProperty(this, 'name', { value: new.target.kind, configurable: true, writable: true })
    this.code = details.code ?? ''
    this.status = details.status ?? 0
    this.requestId = details.requestId ?? ''
    this.hint = details.hint ?? ''
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (typeof value !== 'object' || value === null) return false
    const names = (value as { [kinds]?: unknown })[kinds]
    // A class that a program derives without a kind of its own is an ordinary one.
    if (!Object.hasOwn(this, 'kind')) return Function.prototype[Symbol.hasInstance].call(this, value)
    return Array.isArray(names) && names.includes(this.kind)
  }
}

function sentence(message: string, hint?: string): string {
  if (!hint) return message
  return `${message.replace(/[.;:\s]+$/, '')}; ${hint}`
}

/** 401: no key, or one that is wrong or revoked. */
export class AuthenticationError extends RametError {
  static override readonly kind = 'AuthenticationError'
}

/** 403: the user of the guest may not do it, or only an admin's key may. */
export class PermissionDeniedError extends RametError {
  static override readonly kind = 'PermissionDeniedError'
}

/** 400, 405, 408, 413, 415: the call itself is wrong. */
export class InvalidRequestError extends RametError {
  static override readonly kind: string = 'InvalidRequestError'
}

/** 404: there is no such sandbox, file, process, checkpoint, …; also what another project has. */
export class NotFoundError extends RametError {
  static override readonly kind = 'NotFoundError'
}

/** 409: it is in the wrong state for this call. */
export class ConflictError extends RametError {
  static override readonly kind = 'ConflictError'
}

interface RetryDetails extends ErrorDetails {
  retryAfter?: number
}

/** 429. */
export class RateLimitError extends RametError {
  static override readonly kind: string = 'RateLimitError'
  /** Seconds after which the call may succeed; 0 when the server did not say. */
  readonly retryAfter: number
  constructor(message: string, details: RetryDetails = {}) {
    super(message, details)
    this.retryAfter = details.retryAfter ?? 0
  }
}

/** 429: a quota is used up. */
export class QuotaError extends RateLimitError {
  static override readonly kind = 'QuotaError'
}

/** 5xx: it is not the caller's fault. */
export class ServerError extends RametError {
  static override readonly kind: string = 'ServerError'
}

/** 503: the server cannot do it now. */
export class UnavailableError extends ServerError {
  static override readonly kind = 'UnavailableError'
  /** Seconds after which the call may succeed; 0 when the server did not say. */
  readonly retryAfter: number
  constructor(message: string, details: RetryDetails = {}) {
    super(message, details)
    this.retryAfter = details.retryAfter ?? 0
  }
}

/** 501: this server cannot do it at all. */
export class UnsupportedError extends ServerError {
  static override readonly kind = 'UnsupportedError'
}

/** 507: the sandbox's disk is full. */
export class NoSpaceError extends ServerError {
  static override readonly kind = 'NoSpaceError'
}

/** No server answers, or the connection broke. */
export class ConnectionError extends RametError {
  static override readonly kind: string = 'ConnectionError'
  /** Whether the call may have had an effect. `false`: nothing of it was sent. */
  readonly mayHaveRun: boolean
  constructor(message: string, details: ErrorDetails & { mayHaveRun: boolean }) {
    super(message, details)
    this.mayHaveRun = details.mayHaveRun
  }
}

/** No answer, or a stream in which nothing comes any more. */
export class TimeoutError extends ConnectionError {
  static override readonly kind = 'TimeoutError'
}

/** The settings make no sense. */
export class ConfigurationError extends RametError {
  static override readonly kind = 'ConfigurationError'
}

/** Thrown by `Execution.check()`: the code has failed. */
export class CodeError extends RametError {
  static override readonly kind = 'CodeError'
  readonly execution: Execution
  constructor(message: string, execution: Execution) {
    super(message, { code: execution.reason ?? 'code_failed' })
    this.execution = execution
  }
}

/** Thrown by `CommandResult.check()`: the command has failed. */
export class CommandError extends RametError {
  static override readonly kind = 'CommandError'
  readonly result: CommandResult
  constructor(message: string, result: CommandResult) {
    super(message, { code: result.reason ?? 'command_failed' })
    this.result = result
  }
}

const hints: Record<string, string> = {
  missing_api_key: "set RAMET_API_KEY or give apiKey; 'ramet keys create' makes a key",
  invalid_api_key: "check RAMET_API_KEY or apiKey; 'ramet keys create' makes a key",
  key_revoked: "use another key in RAMET_API_KEY or apiKey; 'ramet keys create' makes one",
  sandbox_not_found: 'it was deleted, or belongs to the project of another key; Sandbox.list() shows those that there are',
  file_not_found: 'files.list() shows what a directory holds',
  process_not_found: 'commands.list() shows those that there are',
  template_not_found: "'ramet template build NAME' builds one",
  internal: "the server's log says why, under the request's id",
  no_space: 'delete files in the sandbox, or make one with a larger diskMb',
}

/** @internal What an answer outside 2xx means. */
export function errorOf(status: number, message: string, code: string, requestId: string, retryAfter: number): RametError {
  const details: RetryDetails = { code, status, requestId, retryAfter }
  const hint = hints[code]
  if (hint !== undefined) details.hint = hint
  switch (status) {
    case 401:
      return new AuthenticationError(message, details)
    case 403:
      return new PermissionDeniedError(message, details)
    case 404:
      return new NotFoundError(message, details)
    case 409:
      return new ConflictError(message, details)
    case 429:
      return code === 'rate_limited' ? new RateLimitError(message, details) : new QuotaError(message, details)
    case 501:
      return new UnsupportedError(message, details)
    case 503:
      return new UnavailableError(message, details)
    case 507:
      return new NoSpaceError(message, details)
  }
  if (status >= 400 && status < 500) return new InvalidRequestError(message, details)
  return new ServerError(message, details)
}

/** @internal An error that came inside a stream. Its code says what an answer's status would have been. */
export function streamErrorOf(message: string, code: string, requestId: string): RametError {
  const details: ErrorDetails = { code, requestId }
  const hint = hints[code]
  if (hint !== undefined) details.hint = hint
  switch (code) {
    case 'sandbox_hibernated':
      return new ConflictError(message, { ...details, hint: 'what ran goes on when the sandbox wakes; follow it again with commands.connect(process)' })
    case 'sandbox_restored':
    case 'sandbox_merged':
    case 'sandbox_failed':
    case 'sandbox_not_running':
    case 'wrong_state':
      return new ConflictError(message, details)
    case 'sandbox_deleted':
    case 'sandbox_not_found':
    case 'process_not_found':
    case 'file_not_found':
      return new NotFoundError(message, details)
    case 'key_revoked':
      return new AuthenticationError(message, details)
    case 'internal':
      return new ServerError(message, details)
  }
  return new UnavailableError(message, details)
}

/// <reference lib="esnext.disposable" preserve="true" />

/**
 * Client of a Ramet server. Start with `Sandbox`.
 *
 * @packageDocumentation
 */

export { Sandbox } from './sandbox.js'
export type { AtEnd, ClientOption, CreateOptions, Isolation, ListOptions, RunOptions, UpdateOptions } from './sandbox.js'
export { Ramet, AllCheckpoints, Keys, Projects, Spaces, Templates } from './ramet.js'
export type { BuildProgress, ProjectSettings, SpaceRef } from './ramet.js'
export { ApiClient } from './client.js'
export type { Answer, CallOptions, ClientOptions, Fetch, Init, Method, OpenAnswer, PathsWith } from './client.js'
export { CommandHandle, CommandResult, Commands, ProcessHandle } from './commands.js'
export type { BackgroundOptions, CommandEvent, CommandOptions, Signal } from './commands.js'
export { Contexts } from './contexts.js'
export type { ContextRef } from './contexts.js'
export * from './errors.js'
export type { EventOptions } from './events.js'
export { Execution, ExecutionError, Outcome, Result, Stderr, Stdout } from './execution.js'
export type { Callback, Chart, ExecutionCallbacks, ExecutionEvent, Exit, ExitReason, OutputCallbacks, Started, Truncated } from './execution.js'
export { Files, FileWatch } from './files.js'
export type { FileChange, FileEvent, FileOptions, FileOverflow, WriteFileOptions, WriteOptions } from './files.js'
export type * from './models.gen.js'
export { PortConnection, Ports } from './ports.js'
export { Pty, PtyHandle } from './pty.js'
export type { PtyOptions } from './pty.js'
export { Checkpoints } from './state.js'
export type { CheckpointRef } from './state.js'
export type { Data } from './transport.js'
export type { components, operations, paths } from './api.gen.js'
export { version } from './version.js'

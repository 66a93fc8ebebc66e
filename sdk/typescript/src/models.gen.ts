// Made of api/openapi.yaml by "make generate-sdk-typescript". Do not edit.

export interface ServerInfo {
    version: string
    /** The kind of machines this server starts, `qemu` for example. */
    driver: string
    /** What stands between a guest and the host: `kvm`, `gvisor` or `emulated`. */
    isolation: string
    region: string
    node: string
    pid: number
    startedAt: Date
    uptimeS: number
    /** Whether calls need a key. */
    auth: boolean
    /** Where guest ports are reached: `<port>-<id>.<preview_domain>`, with the id as `i<32 hex>`. It has a port in it when that is not the one of the scheme. */
    previewDomain?: string
}

export interface Capacity {
    /** Machines that run for sandboxes. Those of the pool are not among them. */
    machines: number
    /** Processes of machines that were started ahead of forks and wakes and wait. */
    waiting: number
    /** How many are kept (the setting `waiting_machines`). Each takes some 30 MB. */
    waitingSize: number
    /** Creates of a template or shape that no pool is kept for. */
    unpooled: number
    pool: PoolCounters
    pools: Pool[]
}

export interface PoolCounters {
    /** How many warm machines are kept. */
    size: number
    /** How many are ready now. */
    ready: number
    /** How many are being made now. */
    warming: number
    /** Creates that took a warm machine. */
    hits: number
    /** Creates that found none and had to boot a machine. */
    misses: number
    /** Hits among hits and misses, 0 to 1. */
    hitRate: number
    /** Warm machines that were thrown away: dead, made from something that was replaced, or because memory was short. */
    discarded: number
    handOffMsMean: number
    /** Of the boots for the misses. */
    onDemandBootMsMean: number
    /** Of making one machine for the pool. */
    refillMsMean: number
    refillMsLast: number
}

export type Pool = PoolCounters & {
    template: string
    vcpus: number
    memoryMb: number
    diskMb: number
}

/**
 * What of the outside a sandbox may reach; without rules everything but the addresses that are always closed (private ranges, the host). Rules are
 *     `example.com` (that name), `*.example.com` (all names below it, not itself), `203.0.113.7` or `203.0.113.0/24`, each for all ports or with
 *     `:443` or `:8000-8010` behind it (IPv6 in brackets then: `[2001:db8::1]:443`). Each list has at most 1000 rules, together at most 64 KiB. Rules are answered in the form in which
 *     events name them: lower case, names in their ASCII form. `docs/egress.md` says how they are enforced.
 */
export interface EgressPolicy {
    /** With `deny_first`, and when it is not empty: nothing else may be reached. With `allow_first`: exceptions to `deny`. */
    allow?: string[]
    /** What may not be reached. */
    deny?: string[]
    /**
     * `deny_first` (default): what `deny` names is denied, then what `allow` does not name, if it has rules. `allow_first`: what
     * `allow` names is allowed, then what `deny` names is denied, and the rest is allowed.
     */
    order?: string
}

export interface SandboxInfo {
    id: string
    /** Podflare's word: `ready` while the sandbox runs, otherwise the same as `status`. */
    state: string
    /** `creating`, `running`, `hibernating`, `hibernated`, `waking`, `stopping`, `stopped` or `failed`. */
    status: string
    /** One sentence, with the status `failed`, and with `stopped` when the server stopped it: its maximum lifetime was over for example. */
    failReason?: string
    /**
     * Set when the guest did not answer a call, although its machine runs. The sandbox stays `running`: calls are still
     * tried, and the first one that is answered clears the mark.
     */
    unresponsiveSince?: Date
    template: string
    templateHash: string
    memoryMb: number
    vcpus: number
    diskMb: number
    egress: boolean
    egressPolicy: EgressPolicy
    metadata: { [key: string]: string; }
    /** What stands between it and the host: `kvm`, `gvisor` or `emulated`. */
    isolation: string
    region: string
    node: string
    /** 0 is never. */
    idleTimeoutS: number
    /** 0 is never. */
    maxLifetimeS: number
    /** It becomes a Space when its idle timeout is over, instead of hibernating. */
    persistent: boolean
    /** What becomes of it when its idle timeout is over: `hibernate`, `space` (persistent ones) or `delete`. */
    onIdle: string
    /** Where this server can be reached directly, by its setting `public_url`; absent when that is not set. */
    endpoint?: string
    /** How it came to be: `create`, `fork`, `checkpoint` or `space`. */
    origin: string
    /** The sandbox that it was forked from, or whose checkpoint or Space it was made of. */
    parent?: string
    /** The checkpoint that it was made of. */
    checkpoint?: string
    /** The Space that it was made of. */
    space?: string
    /** The sandbox that took over its machine, which ended it. */
    mergedInto?: string
    /** One sentence: why its last start kept its disk only and not its memory. Absent when it kept both. */
    bootNote?: string
    /** Its deadline, which updates move. Absent: none, or it does not run. */
    endsAt?: Date
    /** What becomes of it at its deadline; absent without one. */
    atEnd?: string
    /** When it ends by itself if nothing changes: at the end of its maximum lifetime, at a deadline that deletes it, or of its retention while it is hibernated. */
    expiresAt?: Date
    createdAt: Date
    updatedAt: Date
    /**
     * Only in answers of calls that started, saved or replaced its machine. Milliseconds of each step, and `total`. A create that took
     * a machine of the warm pool has the step `claim`; one that booted a machine has `start_vmm`.
     */
    timingsMs?: { [key: string]: number; }
}

/** What checkpoints and Spaces have in common. The settings are those that the sandbox had then; what is started from it has them too. */
export interface Snapshot {
    id: string
    /** The sandbox that it was made of. It may be gone. */
    sandbox: string
    /** `making`, `ready` or `deleting`. Only ready ones can be used. */
    status: string
    template: string
    templateHash: string
    memoryMb: number
    vcpus: number
    diskMb: number
    egress: boolean
    metadata: { [key: string]: string; }
    /** 0 is never. */
    idleTimeoutS: number
    /** 0 is never. */
    maxLifetimeS: number
    persistent: boolean
    /** What stands between it and the host: `kvm`, `gvisor` or `emulated`. */
    isolation: string
    region: string
    node: string
    /** On disk. Layers that it shares with the machine that it was made of count fully. */
    sizeBytes: number
    createdAt: Date
    /** When its retention is over and it is deleted. Absent: never. */
    expiresAt?: Date
}

export type Checkpoint = Snapshot & {
    name: string
    /** `full` or `disk`. */
    kind: string
    /** Only in the answer to its create: how long the sandbox stood still. */
    pausedMs?: number
    /** Only in the answer to its create: memory that was copied. */
    dirtyBytes?: number
    /** Only in the answer to its create. Milliseconds of each step, and `total`. */
    timingsMs?: { [key: string]: number; }
}

export type Space = Snapshot & {
    /** Empty when it has none. */
    name: string
}

export interface Lineage {
    /** `parent`, `checkpoint`, `space` and `mergedInto` say how they belong together. Stopped ones are among them while their records are kept. */
    sandboxes: SandboxInfo[]
    checkpoints: Checkpoint[]
}

/** Paths of regular files, sorted. `added` are only in the other sandbox, `removed` only in this one, `modified` differ. */
export interface Diff {
    added: string[]
    removed: string[]
    modified: string[]
    /** There were more files than can be compared. */
    truncated: boolean
}

export interface Context {
    id: string
    language: string
    /** Where its interpreters start. */
    cwd: string
    /** Its interpreter has been started. */
    running: boolean
}

/** The size of a terminal in characters. */
export interface PtySize {
    columns: number
    rows: number
}

export interface SandboxEvent {
    /** Grows from event to event. */
    id: number
    time: Date
    sandbox: string
    /**
     * The status that the sandbox got (`creating`, `running`, `hibernating`, `hibernated`, `waking`, `stopping`, `stopped`, `failed`), `create_failed`,
     * `updated`, `egress_changed`, or what else happened: `forking` and `forked`, `merged` and `renamed`, `restoring` and `restored`, `checkpointing`, `checkpoint_made`, `checkpoint_failed`,
     * `checkpoint_deleted`, `space_made`, `space_deleted`, `hibernate_failed`, `wake_failed`, `unresponsive`, `responsive`, `egress_denied`. Skip types you do not know.
     */
    type: string
    /** The status of the sandbox after it. */
    state: string
    /** One sentence. */
    reason: string
    /**
     * One word: what brought it about. `create`, `delete`, `update`, `fork`, `merge`, `hibernate`, `wake`, `checkpoint`, `restore` and `resume` are calls
     * (`wake` also any call to a hibernated sandbox); `create_failed`; `retention`: it was kept as long as its project keeps such; `idle_timeout` and `max_lifetime`; `machine_exit`:
     * the machine ended by itself; `restart`: found when the server started; `cleanup`: an earlier attempt did not get through; `guest`;
     * `policy`: its network refused something that the guest asked for.
     */
    cause: string
    /**
     * More about it, by type. `egress_denied`: `protocol` (`tcp`, `udp` or `dns`), `host` (the name that was asked for or that
     * decided, if there was one), `ip` and `port` (not with `dns`), `rule` (what hit: `deny example.com`, `allow list` when no rule of it matched,
     * `egress: false`, `closed addresses`, …), `why` (a few words), and `count`: how many there were. The first
     * one is an event at once, equal ones after it are counted and are one event together, so that a guest cannot flood the events. One without a destination counts those to many others.
     */
    data: { [key: string]: string; }
}

export interface ProcessInfo {
    process: string
    /** As the guest's kernel counts. */
    pid: number
    argv?: string[]
    /** Set for code started by exec. */
    language?: string
    /** What its starter called it. */
    tag?: string
    /** It runs on a terminal. */
    pty?: boolean
    /** Where it was started. */
    cwd?: string
    /** As whom it was started. */
    user?: string
    /** It outlives the call that started it. */
    detached?: boolean
    /** The interpreter that runs it. */
    context?: string
    running: boolean
    startedAt: Date
    nextSeq: number
    exitCode?: number
    reason?: string
    signal?: number
    message?: string
}

export interface FileInfo {
    /** Absolute. */
    path: string
    /** `file`, `directory`, `symlink` or `other`. */
    type: string
    size: number
    /** Permission bits in octal, `0644`. */
    mode: string
    uid: number
    gid: number
    owner: string
    group: string
    modifiedAt: Date
    linkTarget?: string
    /** Extended attributes `user.<name>` that are text. Left out when there are none. */
    attributes?: { [key: string]: string; }
}

export interface Extracted {
    files: number
    bytes: number
}

export interface Metrics {
    memoryTotalBytes: number
    memoryAvailableBytes: number
    diskTotalBytes: number
    diskFreeBytes: number
    load1: number
    uptimeS: number
    /** Since boot, all vCPUs. */
    cpuBusyMs: number
    processes: number
    host: HostMetrics
}

export interface HostMetrics {
    /** Proportional set size of the machine's process. */
    pssBytes: number
    /** Guest pages of 4 KiB that it does not share with its snapshot. */
    ownPages: number
    /** Of its writable layer. */
    diskBytes: number
    cpuTimeMs: number
}

export interface Usage {
    sandboxes: SandboxUsage[]
    templates: TemplateUsage[]
}

export interface SandboxUsage {
    id: string
    template: string
    status: string
    /** What is promised to it. */
    memoryMb: number
    /** What is promised to it. */
    diskMb: number
    /** Memory of its machine, with its share of what it shares with others. */
    pssBytes: number
    /** Memory of its guest that it shares with nobody. */
    ownBytes: number
    /** What it has written. */
    diskBytes: number
}

export interface TemplateUsage {
    name: string
    hash: string
    /** On disk, its snapshots included. All its sandboxes share it. */
    diskBytes: number
    /** How many of the caller's stand on it. */
    sandboxes: number
}

export interface Template {
    name: string
    /** Of everything it is made from. */
    hash: string
    sizeBytes: number
    builtAt: Date
    /** The vCPU counts for which a snapshot is kept. */
    goldens: number[]
    /** Other names that it can be asked for by. */
    aliases?: string[]
}

export interface Key {
    id: string
    name: string
    project: string
    /** The first characters of the secret. */
    prefix: string
    /** Whether it may make projects, and keys of any project. */
    admin: boolean
    createdAt: Date
}

export interface KeyCreated {
    id: string
    name: string
    project: string
    prefix: string
    admin: boolean
    createdAt: Date
    /** The secret. */
    key: string
}

export interface Project {
    name: string
    /** The limit in force, the project's own or the server's. 0: none. */
    maxSandboxes: number
    maxMemoryMb: number
    maxDiskMb: number
    /** How many it has now that have neither stopped nor failed, nor hibernate. */
    sandboxes: number
    /** What is promised to them. */
    memoryMb: number
    /** What is promised to them, and to those that hibernate. */
    diskMb: number
    /** The retention in force, in seconds. 0: for ever. */
    retainHibernatedS: number
    retainSpacesS: number
    retainCheckpointsS: number
    createdAt: Date
}

/** @internal Objects under these names have keys of their own. */
export const opaque: ReadonlySet<string> = new Set(["attributes","data","metadata","timings_ms"])

/** @internal These are times. */
export const dates: ReadonlySet<string> = new Set(["built_at","created_at","ends_at","expires_at","modified_at","started_at","time","unresponsive_since","updated_at"])

"""The schemas of api/openapi.yaml. Generated, see tools/generate.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Optional


@dataclass
class ErrorBody:
    error: str
    """
    One sentence for a person.
    """
    code: str
    """
    A stable word for programs.
    """
    request_id: str


@dataclass
class Info:
    version: str
    driver: str
    """
    The kind of machines this server starts, `qemu` for example.
    """
    isolation: str
    """
    What stands between a guest and the host: `kvm`, `gvisor` or `emulated`.
    """
    region: str
    node: str
    pid: int
    started_at: datetime
    uptime_s: float
    auth: bool
    """
    Whether calls need a key.
    """
    preview_domain: Optional[str] = None
    """
    Where guest ports are reached: `<port>-<id>.<preview_domain>`, with the id as `i<32 hex>`. It has a port in it when that is not the one of the scheme.
    """


@dataclass
class PoolCounters:
    size: int
    """
    How many warm machines are kept.
    """
    ready: int
    """
    How many are ready now.
    """
    warming: int
    """
    How many are being made now.
    """
    hits: int
    """
    Creates that took a warm machine.
    """
    misses: int
    """
    Creates that found none and had to boot a machine.
    """
    hit_rate: float
    """
    Hits among hits and misses, 0 to 1.
    """
    discarded: int
    """
    Warm machines that were thrown away: dead, made from something that was replaced, or because memory was short.
    """
    hand_off_ms_mean: float
    on_demand_boot_ms_mean: float
    """
    Of the boots for the misses.
    """
    refill_ms_mean: float
    """
    Of making one machine for the pool.
    """
    refill_ms_last: float


@dataclass
class Pool:
    size: int
    """
    How many warm machines are kept.
    """
    ready: int
    """
    How many are ready now.
    """
    warming: int
    """
    How many are being made now.
    """
    hits: int
    """
    Creates that took a warm machine.
    """
    misses: int
    """
    Creates that found none and had to boot a machine.
    """
    hit_rate: float
    """
    Hits among hits and misses, 0 to 1.
    """
    discarded: int
    """
    Warm machines that were thrown away: dead, made from something that was replaced, or because memory was short.
    """
    hand_off_ms_mean: float
    on_demand_boot_ms_mean: float
    """
    Of the boots for the misses.
    """
    refill_ms_mean: float
    """
    Of making one machine for the pool.
    """
    refill_ms_last: float
    template: str
    vcpus: int
    memory_mb: int
    disk_mb: int


@dataclass
class EgressPolicy:
    """
    What of the outside a sandbox may reach; without rules everything but the addresses that are always closed (private ranges, the host). Rules are
    `example.com` (that name), `*.example.com` (all names below it, not itself), `203.0.113.7` or `203.0.113.0/24`, each for all ports or with
    `:443` or `:8000-8010` behind it (IPv6 in brackets then: `[2001:db8::1]:443`). Each list has at most 1000 rules, together at most 64 KiB. Rules are answered in the form in which
    events name them: lower case, names in their ASCII form. `docs/egress.md` says how they are enforced.

    """

    allow: Optional[list[str]] = None
    """
    With `deny_first`, and when it is not empty: nothing else may be reached. With `allow_first`: exceptions to `deny`.
    """
    deny: Optional[list[str]] = None
    """
    What may not be reached.
    """
    order: Optional[str] = None
    """
    `deny_first` (default): what `deny` names is denied, then what `allow` does not name, if it has rules. `allow_first`: what
    `allow` names is allowed, then what `deny` names is denied, and the rest is allowed.

    """


@dataclass
class EgressSet:
    egress: bool
    """
    `false` closes the network, whatever the policy says, which is kept.
    """
    egress_policy: EgressPolicy


@dataclass
class SandboxUpdate:
    """
    What is absent stays as it was.
    """

    idle_timeout_s: Optional[int] = None
    """
    0 is never.
    """
    max_lifetime_s: Optional[int] = None
    """
    0 is never. It counts from the create: one that is over already stops the sandbox at once.
    """
    timeout_seconds: Optional[int] = None
    """
    Podflare's name of `max_lifetime_s`.
    """
    idle_timeout_seconds: Optional[int] = None
    """
    Podflare's name of `idle_timeout_s`.
    """
    ends_in_s: Optional[int] = None
    """
    Moves the deadline to so many seconds from now; 0 takes it away. While the sandbox hibernates it is the time from its wake on.
    """
    at_end: Optional[str] = None
    """
    `delete`, `hibernate` or `hibernate_disk`.
    """
    metadata: Optional[dict[str, Optional[str]]] = None
    """
    Merged into what is there. A value of null removes its key.
    """


@dataclass
class SandboxInfo:
    id: str
    state: str
    """
    Podflare's word: `ready` while the sandbox runs, otherwise the same as `status`.
    """
    status: str
    """
    `creating`, `running`, `hibernating`, `hibernated`, `waking`, `stopping`, `stopped` or `failed`.
    """
    template: str
    template_hash: str
    memory_mb: int
    vcpus: int
    disk_mb: int
    egress: bool
    egress_policy: EgressPolicy
    metadata: dict[str, str]
    isolation: str
    """
    What stands between it and the host: `kvm`, `gvisor` or `emulated`.
    """
    region: str
    node: str
    idle_timeout_s: int
    """
    0 is never.
    """
    max_lifetime_s: int
    """
    0 is never.
    """
    persistent: bool
    """
    It becomes a Space when its idle timeout is over, instead of hibernating.
    """
    on_idle: str
    """
    What becomes of it when its idle timeout is over: `hibernate`, `space` (persistent ones) or `delete`.
    """
    origin: str
    """
    How it came to be: `create`, `fork`, `checkpoint` or `space`.
    """
    created_at: datetime
    updated_at: datetime
    fail_reason: Optional[str] = None
    """
    One sentence, with the status `failed`, and with `stopped` when the server stopped it: its maximum lifetime was over for example.
    """
    unresponsive_since: Optional[datetime] = None
    """
    Set when the guest did not answer a call, although its machine runs. The sandbox stays `running`: calls are still
    tried, and the first one that is answered clears the mark.

    """
    endpoint: Optional[str] = None
    """
    Where this server can be reached directly, by its setting `public_url`; absent when that is not set.
    """
    parent: Optional[str] = None
    """
    The sandbox that it was forked from, or whose checkpoint or Space it was made of.
    """
    checkpoint: Optional[str] = None
    """
    The checkpoint that it was made of.
    """
    space: Optional[str] = None
    """
    The Space that it was made of.
    """
    merged_into: Optional[str] = None
    """
    The sandbox that took over its machine, which ended it.
    """
    boot_note: Optional[str] = None
    """
    One sentence: why its last start kept its disk only and not its memory. Absent when it kept both.
    """
    ends_at: Optional[datetime] = None
    """
    Its deadline, which updates move. Absent: none, or it does not run.
    """
    at_end: Optional[str] = None
    """
    What becomes of it at its deadline; absent without one.
    """
    expires_at: Optional[datetime] = None
    """
    When it ends by itself if nothing changes: at the end of its maximum lifetime, at a deadline that deletes it, or of its retention while it is hibernated.
    """
    timings_ms: Optional[dict[str, float]] = None
    """
    Only in answers of calls that started, saved or replaced its machine. Milliseconds of each step, and `total`. A create that took
    a machine of the warm pool has the step `claim`; one that booted a machine has `start_vmm`.

    """


@dataclass
class ForkRequest:
    n: Optional[int] = None
    """
    How many children, 1 to 32. Default 1.
    """
    reseed: Optional[bool] = None
    """
    Whether the generators of `random` and numpy get new seeds in each child. Default true; with false all children draw the parent's next numbers. The kernel's randomness is new in any case.
    """


@dataclass
class Forked:
    children: list[str]
    """
    The ids of the children.
    """
    sandboxes: list[SandboxInfo]
    """
    The children, in the same order.
    """
    paused_ms: float
    """
    How long the parent stood still.
    """
    dirty_bytes: int
    """
    Memory that was copied.
    """
    timings_ms: dict[str, float]
    """
    Milliseconds of each step, and `total`.
    """


@dataclass
class CheckpointCreate:
    name: Optional[str] = None
    """
    Unique among the checkpoints of the sandbox: up to 64 letters, digits, dots, dashes and underscores. Default: one is made up.
    """
    kind: Optional[str] = None
    """
    `full` (default): memory, processes and disk. `disk`: the disk only; what starts from it boots.
    """
    delete_oldest: Optional[bool] = None
    """
    When the sandbox has as many of the kind as it may have (10 full, 100 disk), delete the oldest instead of refusing.
    """


@dataclass
class RestoreRequest:
    checkpoint: str
    """
    The id of one of its checkpoints.
    """


@dataclass
class SpaceResume:
    """
    What is absent is as it was in the sandbox that became the Space.
    """

    idle_timeout_s: Optional[int] = None
    """
    0 is never.
    """
    max_lifetime_s: Optional[int] = None
    """
    0 is never. It counts from the resume.
    """
    timeout_seconds: Optional[int] = None
    """
    Podflare's name of `max_lifetime_s`.
    """
    idle_timeout_seconds: Optional[int] = None
    """
    Podflare's `idle_timeout_s`. With it the sandbox is deleted when that is over, instead of hibernating, unless it is persistent.
    """
    persistent: Optional[bool] = None
    """
    Whether it becomes a Space again when its idle timeout is over.
    """
    egress: Optional[bool] = None
    """
    Whether it reaches the internet.
    """


@dataclass
class Snapshot:
    """
    What checkpoints and Spaces have in common. The settings are those that the sandbox had then; what is started from it has them too.
    """

    id: str
    sandbox: str
    """
    The sandbox that it was made of. It may be gone.
    """
    status: str
    """
    `making`, `ready` or `deleting`. Only ready ones can be used.
    """
    template: str
    template_hash: str
    memory_mb: int
    vcpus: int
    disk_mb: int
    egress: bool
    metadata: dict[str, str]
    idle_timeout_s: int
    """
    0 is never.
    """
    max_lifetime_s: int
    """
    0 is never.
    """
    persistent: bool
    isolation: str
    """
    What stands between it and the host: `kvm`, `gvisor` or `emulated`.
    """
    region: str
    node: str
    size_bytes: int
    """
    On disk. Layers that it shares with the machine that it was made of count fully.
    """
    created_at: datetime
    expires_at: Optional[datetime] = None
    """
    When its retention is over and it is deleted. Absent: never.
    """


@dataclass
class Checkpoint:
    id: str
    sandbox: str
    """
    The sandbox that it was made of. It may be gone.
    """
    status: str
    """
    `making`, `ready` or `deleting`. Only ready ones can be used.
    """
    template: str
    template_hash: str
    memory_mb: int
    vcpus: int
    disk_mb: int
    egress: bool
    metadata: dict[str, str]
    idle_timeout_s: int
    """
    0 is never.
    """
    max_lifetime_s: int
    """
    0 is never.
    """
    persistent: bool
    isolation: str
    """
    What stands between it and the host: `kvm`, `gvisor` or `emulated`.
    """
    region: str
    node: str
    size_bytes: int
    """
    On disk. Layers that it shares with the machine that it was made of count fully.
    """
    created_at: datetime
    name: str
    kind: str
    """
    `full` or `disk`.
    """
    expires_at: Optional[datetime] = None
    """
    When its retention is over and it is deleted. Absent: never.
    """
    paused_ms: Optional[float] = None
    """
    Only in the answer to its create: how long the sandbox stood still.
    """
    dirty_bytes: Optional[int] = None
    """
    Only in the answer to its create: memory that was copied.
    """
    timings_ms: Optional[dict[str, float]] = None
    """
    Only in the answer to its create. Milliseconds of each step, and `total`.
    """


@dataclass
class CheckpointList:
    checkpoints: list[Checkpoint]
    next_cursor: Optional[str] = None
    """
    Absent on the last page.
    """


@dataclass
class Space:
    id: str
    sandbox: str
    """
    The sandbox that it was made of. It may be gone.
    """
    status: str
    """
    `making`, `ready` or `deleting`. Only ready ones can be used.
    """
    template: str
    template_hash: str
    memory_mb: int
    vcpus: int
    disk_mb: int
    egress: bool
    metadata: dict[str, str]
    idle_timeout_s: int
    """
    0 is never.
    """
    max_lifetime_s: int
    """
    0 is never.
    """
    persistent: bool
    isolation: str
    """
    What stands between it and the host: `kvm`, `gvisor` or `emulated`.
    """
    region: str
    node: str
    size_bytes: int
    """
    On disk. Layers that it shares with the machine that it was made of count fully.
    """
    created_at: datetime
    name: str
    """
    Empty when it has none.
    """
    expires_at: Optional[datetime] = None
    """
    When its retention is over and it is deleted. Absent: never.
    """


@dataclass
class SpaceList:
    spaces: list[Space]
    next_cursor: Optional[str] = None
    """
    Absent on the last page.
    """


@dataclass
class Lineage:
    sandboxes: list[SandboxInfo]
    """
    `parent`, `checkpoint`, `space` and `merged_into` say how they belong together. Stopped ones are among them while their records are kept.
    """
    checkpoints: list[Checkpoint]


@dataclass
class DiffRequest:
    other: str
    """
    The id of the sandbox to compare with.
    """
    paths: Optional[list[str]] = None
    """
    Absolute paths, of files or directories with all that is in them, at most 100. Default `/root` and `/tmp`.
    """


@dataclass
class Diff:
    """
    Paths of regular files, sorted. `added` are only in the other sandbox, `removed` only in this one, `modified` differ.
    """

    added: list[str]
    removed: list[str]
    modified: list[str]
    truncated: bool
    """
    There were more files than can be compared.
    """


@dataclass
class GCRequest:
    dry_run: Optional[bool] = None
    """
    Only say what would be removed.
    """


@dataclass
class Garbage:
    id: str
    """
    The name of its directory.
    """
    bytes: int
    why: str
    """
    One sentence.
    """


@dataclass
class SandboxList:
    sandboxes: list[SandboxInfo]
    next_cursor: Optional[str] = None
    """
    Absent on the last page.
    """


@dataclass
class ExecRequest:
    code: str
    language: Optional[str] = None
    """
    `python` (default), `javascript` or `bash`. Python and JavaScript run in an interpreter that keeps its state, bash without a
    `context` in a process of its own. `typescript` is JavaScript whose types are stripped, where the sandbox's Node.js can do that. With `context` the language is that of the context.

    """
    context: Optional[str] = None
    """
    The interpreter to run in, see `…/contexts`.
    """
    timeout_s: Optional[float] = None
    """
    Seconds after which the code is interrupted. 0 or absent means never.
    """
    env: Optional[dict[str, str]] = None
    """
    Environment for this call only.
    """
    cwd: Optional[str] = None
    """
    Working directory for this call only.
    """
    user: Optional[str] = None
    """
    The guest's user, for `bash` without a context. Default `root`.
    """
    format: Optional[str] = None
    """
    `lines` (default) or `chunks`, see `Event`.
    """


@dataclass
class ContextCreate:
    language: Optional[str] = None
    """
    `python` (default), `javascript` or `bash`.
    """
    cwd: Optional[str] = None
    """
    Where the interpreter starts. Default is the home of root.
    """


@dataclass
class Context:
    id: str
    language: str
    cwd: str
    """
    Where its interpreters start.
    """
    running: bool
    """
    Its interpreter has been started.
    """


@dataclass
class ContextList:
    contexts: list[Context]


@dataclass
class PtySize:
    """
    The size of a terminal in characters.
    """

    columns: int
    rows: int


@dataclass
class RunEvent:
    """
    One line of a run's stream.

    In the format `lines` every `stdout` and `stderr` event is one line of output *without its newline*, so that a client
    may join `data` by newlines. Output that ends without a newline is sent at the end with `eol: false`; a line
    longer than 8 MiB is sent in parts, all but the last with `eol: false`. `seq` counts the events of this answer from 0.
    What else a caller should know is on `stderr` too, as a line that begins with `[ramet]`: why there is no interpreter any
    more or none was started, that output was dropped, that the stream broke.

    In the format `chunks` (always used for programs) the events are those of the run's journal: text as it comes,
    never split inside a character. `seq` is the number in the journal, to follow the run again from `seq` + 1.
    An `error` has the number of the `exit` after it.

    Bytes that are not UTF-8 are replaced in `data` (U+FFFD) and are there exactly in `data_b64`.

    """

    type: str
    """
    `started`, `stdout`, `stderr`, `result`, `error`, `truncated`, `exit` or `stream_error`. Skip types you do not know.
    """
    data: Any
    """
    `stdout`, `stderr`: text. `result`: an object from MIME type to text (base64 for binary types); `application/vnd.ramet.chart+json`
    describes a chart of matplotlib, `application/vnd.ramet.data+json` has the columns of a DataFrame as lists.
    `error`: `name: value`. `truncated`: how many bytes of output were dropped here, because they were not read in time or there was no room for them; in the format `chunks` `seq` is that of the last event that is missing.
    `exit`: the exit code. `started`: the process id as the guest's kernel counts. `stream_error`: a sentence.

    """
    seq: int
    ts: int
    """
    The host's clock, milliseconds since 1970.
    """
    eol: Optional[bool] = None
    """
    `false` when no newline followed.
    """
    data_b64: Optional[str] = None
    """
    The exact bytes when they are not UTF-8.
    """
    process: Optional[str] = None
    """
    `started`: the id for the calls under `processes`.
    """
    main: Optional[bool] = None
    """
    `result`: the value of the last expression, not something displayed on the way.
    """
    name: Optional[str] = None
    """
    `error`: the class of the exception.
    """
    value: Optional[str] = None
    """
    `error`: its text.
    """
    traceback: Optional[str] = None
    """
    `error`: the whole traceback.
    """
    reason: Optional[str] = None
    """
    `exit`, absent when the code or program ended by itself: `signaled`, `timeout`, `interrupted`, `interpreter_died`,
    `out_of_memory` or `start_failed`.

    """
    signal: Optional[int] = None
    """
    `exit`: the signal that ended it. The code is then 128 plus it.
    """
    message: Optional[str] = None
    """
    `exit`: one sentence, with a reason.
    """
    duration_ms: Optional[float] = None
    """
    `exit`: how long it ran, by the guest's clock.
    """
    code: Optional[str] = None
    """
    `stream_error`: the word that an error answer would have.
    """


@dataclass
class SandboxEvent:
    id: int
    """
    Grows from event to event.
    """
    time: datetime
    sandbox: str
    type: str
    """
    The status that the sandbox got (`creating`, `running`, `hibernating`, `hibernated`, `waking`, `stopping`, `stopped`, `failed`), `create_failed`,
    `updated`, `egress_changed`, or what else happened: `forking` and `forked`, `merged` and `renamed`, `restoring` and `restored`, `checkpointing`, `checkpoint_made`, `checkpoint_failed`,
    `checkpoint_deleted`, `space_made`, `space_deleted`, `hibernate_failed`, `wake_failed`, `unresponsive`, `responsive`, `egress_denied`. Skip types you do not know.

    """
    state: str
    """
    The status of the sandbox after it.
    """
    reason: str
    """
    One sentence.
    """
    cause: str
    """
    One word: what brought it about. `create`, `delete`, `update`, `fork`, `merge`, `hibernate`, `wake`, `checkpoint`, `restore` and `resume` are calls
    (`wake` also any call to a hibernated sandbox); `create_failed`; `retention`: it was kept as long as its project keeps such; `idle_timeout` and `max_lifetime`; `machine_exit`:
    the machine ended by itself; `restart`: found when the server started; `cleanup`: an earlier attempt did not get through; `guest`;
    `policy`: its network refused something that the guest asked for.

    """
    data: dict[str, str]
    """
    More about it, by type. `egress_denied`: `protocol` (`tcp`, `udp` or `dns`), `host` (the name that was asked for or that
    decided, if there was one), `ip` and `port` (not with `dns`), `rule` (what hit: `deny example.com`, `allow list` when no rule of it matched,
    `egress: false`, `closed addresses`, …), `why` (a few words), and `count`: how many there were. The first
    one is an event at once, equal ones after it are counted and are one event together, so that a guest cannot flood the events. One without a destination counts those to many others.

    """


@dataclass
class ProcessInfo:
    process: str
    pid: int
    """
    As the guest's kernel counts.
    """
    running: bool
    started_at: datetime
    next_seq: int
    argv: Optional[list[str]] = None
    language: Optional[str] = None
    """
    Set for code started by exec.
    """
    tag: Optional[str] = None
    """
    What its starter called it.
    """
    pty: Optional[bool] = None
    """
    It runs on a terminal.
    """
    cwd: Optional[str] = None
    """
    Where it was started.
    """
    user: Optional[str] = None
    """
    As whom it was started.
    """
    detached: Optional[bool] = None
    """
    It outlives the call that started it.
    """
    context: Optional[str] = None
    """
    The interpreter that runs it.
    """
    exit_code: Optional[int] = None
    reason: Optional[str] = None
    signal: Optional[int] = None
    message: Optional[str] = None


@dataclass
class ProcessList:
    processes: list[ProcessInfo]


@dataclass
class SignalRequest:
    signal: Any
    """
    A name such as `SIGINT` (or `INT`), or a number.
    """


@dataclass
class Written:
    bytes: int


@dataclass
class FileInfo:
    path: str
    """
    Absolute.
    """
    type: str
    """
    `file`, `directory`, `symlink` or `other`.
    """
    size: int
    mode: str
    """
    Permission bits in octal, `0644`.
    """
    uid: int
    gid: int
    owner: str
    group: str
    modified_at: datetime
    link_target: Optional[str] = None
    attributes: Optional[dict[str, str]] = None
    """
    Extended attributes `user.<name>` that are text. Left out when there are none.
    """


@dataclass
class FileEvent:
    type: str
    """
    `started`, `change`, `overflow` or, at the end, `stream_error`. Skip types you do not know.
    """
    path: Optional[str] = None
    """
    `change`: relative to the directory that is watched; `.` is that itself.
    """
    change: Optional[str] = None
    """
    `create` (made, or moved here), `write`, `remove`, `rename` (moved away from this name) or `chmod` (mode, owner, times, attributes).
    """
    info: Optional[FileInfo] = None
    error: Optional[str] = None
    """
    `stream_error`: a sentence.
    """
    code: Optional[str] = None
    """
    `stream_error`: its stable word, such as `file_not_found` when the directory has gone.
    """


@dataclass
class PortList:
    ports: list[int]


@dataclass
class FileList:
    files: list[FileInfo]
    truncated: Optional[bool] = None
    """
    There are more entries than are shown.
    """


@dataclass
class MakeDirectory:
    path: str
    user: Optional[str] = None
    mode: Optional[str] = None
    """
    Octal. Default `0755`.
    """
    parents: Optional[bool] = None
    """
    Make missing parents; an existing directory is then no error.
    """


@dataclass
class MoveFile:
    from_: str
    to: str
    user: Optional[str] = None
    overwrite: Optional[bool] = None
    """
    Replace what is there.
    """


@dataclass
class FileAttributes:
    path: str
    user: Optional[str] = None
    mode: Optional[str] = None
    """
    Octal.
    """
    owner: Optional[str] = None
    """
    A user's name or number.
    """
    group: Optional[str] = None
    """
    A group's name or number.
    """


@dataclass
class Extracted:
    files: int
    bytes: int


@dataclass
class HostMetrics:
    pss_bytes: int
    """
    Proportional set size of the machine's process.
    """
    own_pages: int
    """
    Guest pages of 4 KiB that it does not share with its snapshot.
    """
    disk_bytes: int
    """
    Of its writable layer.
    """
    cpu_time_ms: int


@dataclass
class SandboxUsage:
    id: str
    template: str
    status: str
    memory_mb: int
    """
    What is promised to it.
    """
    disk_mb: int
    """
    What is promised to it.
    """
    pss_bytes: int
    """
    Memory of its machine, with its share of what it shares with others.
    """
    own_bytes: int
    """
    Memory of its guest that it shares with nobody.
    """
    disk_bytes: int
    """
    What it has written.
    """


@dataclass
class TemplateUsage:
    name: str
    hash: str
    disk_bytes: int
    """
    On disk, its snapshots included. All its sandboxes share it.
    """
    sandboxes: int
    """
    How many of the caller's stand on it.
    """


@dataclass
class Template:
    name: str
    hash: str
    """
    Of everything it is made from.
    """
    size_bytes: int
    built_at: datetime
    goldens: list[int]
    """
    The vCPU counts for which a snapshot is kept.
    """
    aliases: Optional[list[str]] = None
    """
    Other names that it can be asked for by.
    """


@dataclass
class TemplateState:
    name: str
    state: str
    """
    `building` or `failed`.
    """
    step: Optional[str] = None
    detail: Optional[str] = None
    fraction: Optional[float] = None
    """
    From 0 to 1
    """
    error: Optional[str] = None
    """
    Why it failed. Building it again tries again.
    """


@dataclass
class TemplateBuild:
    name: str


@dataclass
class BuildEvent:
    type: str
    """
    `progress`, `done` or `error`.
    """
    step: Optional[str] = None
    """
    `progress`: what is being done.
    """
    detail: Optional[str] = None
    """
    `progress`: its last line of output.
    """
    fraction: Optional[float] = None
    """
    `progress`: 0 to 1 where it is known.
    """
    done: Optional[bool] = None
    """
    `progress`: the step has ended.
    """
    template: Optional[Template] = None
    error: Optional[str] = None
    """
    `error`: one sentence.
    """
    code: Optional[str] = None
    """
    `error`: a stable word.
    """
    request_id: Optional[str] = None
    """
    `error`.
    """


@dataclass
class KeyCreate:
    name: Optional[str] = None
    """
    To recognise the key by.
    """
    project: Optional[str] = None
    """
    The project that it belongs to. Default is the caller's own; only an admin's key may name another.
    """
    format: Optional[str] = None
    """
    The shape of the secret: `ramet` (default), or `e2b` for clients that take `e2b_<hex>` only.
    """


@dataclass
class Key:
    id: str
    name: str
    project: str
    prefix: str
    """
    The first characters of the secret.
    """
    admin: bool
    """
    Whether it may make projects, and keys of any project.
    """
    created_at: datetime


@dataclass
class KeyCreated:
    id: str
    name: str
    project: str
    prefix: str
    admin: bool
    created_at: datetime
    key: str
    """
    The secret.
    """


@dataclass
class KeyList:
    keys: list[Key]


@dataclass
class ProjectSet:
    """
    Each limit: a number above 0, 0 for the server's default, -1 for none.
    """

    max_sandboxes: Optional[int] = None
    """
    Sandboxes at one time.
    """
    max_memory_mb: Optional[int] = None
    """
    MiB of memory of all of them together.
    """
    max_disk_mb: Optional[int] = None
    """
    MiB of disk of all of them together.
    """
    retain_hibernated_s: Optional[int] = None
    """
    Seconds after which a sandbox that hibernates is deleted. Like the limits, 0 is the server's default (30 days) and -1 is never.
    """
    retain_spaces_s: Optional[int] = None
    """
    The same for Spaces (30 days).
    """
    retain_checkpoints_s: Optional[int] = None
    """
    The same for checkpoints (90 days).
    """


@dataclass
class Project:
    name: str
    max_sandboxes: int
    """
    The limit in force, the project's own or the server's. 0: none.
    """
    max_memory_mb: int
    max_disk_mb: int
    sandboxes: int
    """
    How many it has now that have neither stopped nor failed, nor hibernate.
    """
    memory_mb: int
    """
    What is promised to them.
    """
    disk_mb: int
    """
    What is promised to them, and to those that hibernate.
    """
    retain_hibernated_s: int
    """
    The retention in force, in seconds. 0: for ever.
    """
    retain_spaces_s: int
    retain_checkpoints_s: int
    created_at: datetime


@dataclass
class ProjectList:
    projects: list[Project]


@dataclass
class Capacity:
    machines: int
    """
    Machines that run for sandboxes. Those of the pool are not among them.
    """
    waiting: int
    """
    Processes of machines that were started ahead of forks and wakes and wait.
    """
    waiting_size: int
    """
    How many are kept (the setting `waiting_machines`). Each takes some 30 MB.
    """
    unpooled: int
    """
    Creates of a template or shape that no pool is kept for.
    """
    pool: PoolCounters
    pools: list[Pool]


@dataclass
class SandboxCreate:
    template: Optional[str] = None
    """
    Default `default`.
    """
    memory_mb: Optional[int] = None
    """
    MiB of memory, 512 to 16384 in steps of 128. Default 1024.
    """
    vcpus: Optional[int] = None
    """
    1, 2, 4 or 8. Default 2.
    """
    disk_mb: Optional[int] = None
    """
    MiB of disk, 4096 to 65536. Default 4096.
    """
    egress: Optional[bool] = None
    """
    Whether the sandbox reaches the internet. Default true.
    """
    egress_policy: Optional[EgressPolicy] = None
    env: Optional[dict[str, str]] = None
    """
    Environment of everything that runs in the sandbox. It is not shown again, since it may hold secrets.
    """
    metadata: Optional[dict[str, str]] = None
    """
    Anything the caller wants to find the sandbox by.
    """
    ram_mib: Optional[int] = None
    """
    Podflare's name of `memory_mb`. Rounded up to a step of 128.
    """
    rootfs_gb: Optional[int] = None
    """
    Podflare's name of the disk size, in GiB.
    """
    checkpoint: Optional[str] = None
    """
    The id of a checkpoint to start from, instead of a template. The new sandbox has the checkpoint's template and shape, which cannot be
    changed, and those of its settings that this request does not give. It has no network when either says so, and is persistent when either says so.

    """
    reseed: Optional[bool] = None
    """
    Only with `checkpoint`: whether the generators of `random` and numpy get new seeds. Default true. The kernel's randomness is new in any case.
    """
    idle_timeout_s: Optional[int] = None
    """
    Seconds without a call after which the sandbox hibernates (a persistent one becomes a Space), 0 to a year. 0 is never, absent the server's setting (300). A call in flight, a stream included, is a call: a long silent one is not idleness. Reading the sandbox, its metrics, console and events is none, and neither is what runs detached in it.
    """
    max_lifetime_s: Optional[int] = None
    """
    Seconds after its create at which the sandbox is stopped for good, hibernated or not, 0 to a year. 0 or absent is never.
    """
    timeout_seconds: Optional[int] = None
    """
    Podflare's name of `max_lifetime_s`.
    """
    idle_timeout_seconds: Optional[int] = None
    """
    Podflare's `idle_timeout_s`. With it the sandbox is deleted when that is over, instead of hibernating, unless it is persistent.
    """
    persistent: Optional[bool] = None
    """
    Whether it becomes a Space when its idle timeout is over, instead of hibernating. Default false.
    """
    isolation: Optional[str] = None
    """
    What has to stand between the sandbox and the host: `kvm`, `gvisor` or `emulated`. Where the server gives another one, a stronger one too, or the checkpoint is of another one, the answer is 400 `isolation_unavailable`. Absent is no matter what; the answer says which it is.
    """
    ends_in_s: Optional[int] = None
    """
    Seconds for which it runs until its deadline, which updates move and calls do not. It counts from the moment at which the sandbox runs, and anew from each wake. 0 or absent is none.
    """
    at_end: Optional[str] = None
    """
    What becomes of it at its deadline: `delete` (default), `hibernate`, or `hibernate_disk` (without its memory: the wake is a boot).
    """


@dataclass
class GCReport:
    dry_run: bool
    snapshots: list[Garbage]
    instances: list[Garbage]
    """
    What is left of machines.
    """
    bytes: int
    """
    Of all of them together.
    """


@dataclass
class ProcessStart:
    argv: list[str]
    """
    The program and its arguments. The program is looked up in the guest's PATH.
    """
    cwd: Optional[str] = None
    """
    Default is the user's home.
    """
    env: Optional[dict[str, str]] = None
    user: Optional[str] = None
    """
    Default `root`.
    """
    timeout_s: Optional[float] = None
    """
    Seconds after which the program is interrupted. 0 or absent means never.
    """
    stdin: Optional[bool] = None
    """
    Keep standard input open for `…/stdin`. Default is an empty one.
    """
    detach: Optional[bool] = None
    """
    Outlive this call.
    """
    pty: Optional[PtySize] = None
    tag: Optional[str] = None
    """
    A name of your own for it, shown in lists; at most 256 bytes.
    """


@dataclass
class Metrics:
    memory_total_bytes: int
    memory_available_bytes: int
    disk_total_bytes: int
    disk_free_bytes: int
    load1: float
    uptime_s: float
    cpu_busy_ms: int
    """
    Since boot, all vCPUs.
    """
    processes: int
    host: HostMetrics


@dataclass
class Usage:
    sandboxes: list[SandboxUsage]
    templates: list[TemplateUsage]


@dataclass
class TemplateList:
    templates: list[Template]
    builds: list[TemplateState]
    """
    Templates that are being built now, or whose last build failed.
    """

-- name: InsertSandbox :exec
INSERT INTO sandboxes (id, project, region, node, template, template_hash, state, fail_reason, unresponsive_since,
    instance, vcpus, memory_mb, disk_mb, isolation, egress, env, metadata, created_at, updated_at, idempotency,
    idle_timeout_ms, max_lifetime_ms, egress_policy, persistent, origin, parent, snapshot, merged_into, hibernation, boot_note,
    ends_at, end_after_ms, at_end, manual_wake, private_ports)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: UpdateSandbox :execrows
-- The state in the condition is the compare-and-swap of every transition.
UPDATE sandboxes SET template_hash = @template_hash, state = @next_state, fail_reason = @fail_reason,
    unresponsive_since = @unresponsive_since, instance = @instance, vcpus = @vcpus, memory_mb = @memory_mb,
    disk_mb = @disk_mb, isolation = @isolation, egress = @egress, env = @env, metadata = @metadata, updated_at = @updated_at,
    idle_timeout_ms = @idle_timeout_ms, max_lifetime_ms = @max_lifetime_ms, egress_policy = @egress_policy,
    template = @template, persistent = @persistent, merged_into = @merged_into, hibernation = @hibernation, boot_note = @boot_note,
    ends_at = @ends_at, end_after_ms = @end_after_ms, at_end = @at_end, manual_wake = @manual_wake, private_ports = @private_ports
WHERE id = @id AND state = @state;

-- name: GetSandbox :one
SELECT * FROM sandboxes WHERE id = @id AND project = @project;

-- name: GetSandboxForChange :one
SELECT * FROM sandboxes WHERE id = @id;

-- name: SandboxOfInstance :one
SELECT * FROM sandboxes WHERE instance = @instance;

-- name: SandboxesOfNode :many
-- Everything that is or may be on the host: all but the stopped.
SELECT * FROM sandboxes WHERE node = @node AND state <> 'stopped' ORDER BY created_at, id;

-- name: ListSandboxes :many
-- The page before (before_time, before_id), newest first. An empty state means all but the stopped, "any" all.
SELECT * FROM sandboxes
WHERE project = @project
  AND (created_at < @before_time OR (created_at = @before_time AND id < @before_id))
  AND (state = @state OR @state = 'any' OR (@state = '' AND state <> 'stopped'))
  AND (template = @template OR @template = '')
  AND origin <> 'restore' -- they are the server's own
ORDER BY created_at DESC, id DESC
LIMIT @max_rows;

-- name: CountOnTemplate :one
SELECT (SELECT count(*) FROM sandboxes WHERE sandboxes.template = @template AND sandboxes.state NOT IN ('stopped', 'failed')) AS sandboxes,
    (SELECT count(*) FROM snapshots WHERE snapshots.template = @template) AS snapshots;

-- name: TemplateHashesInUse :many
SELECT template_hash FROM sandboxes WHERE sandboxes.node = @node AND sandboxes.state NOT IN ('stopped', 'failed')
UNION SELECT template_hash FROM snapshots WHERE snapshots.node = @node;

-- name: MarkUnresponsive :execrows
UPDATE sandboxes SET unresponsive_since = @since, updated_at = @updated_at
WHERE id = @id AND state = 'running' AND unresponsive_since = 0;

-- name: ClearUnresponsive :execrows
UPDATE sandboxes SET unresponsive_since = 0, updated_at = @updated_at WHERE id = @id AND unresponsive_since <> 0;

-- name: DeleteEndedBefore :execrows
DELETE FROM sandboxes WHERE state IN ('stopped', 'failed') AND updated_at < @before;

-- name: PutIntent :exec
INSERT INTO intents (sandbox, operation, started_at) VALUES (?, ?, ?)
ON CONFLICT (sandbox) DO UPDATE SET operation = excluded.operation, started_at = excluded.started_at;

-- name: DeleteIntent :exec
DELETE FROM intents WHERE sandbox = ?;

-- name: GetIntent :one
SELECT operation FROM intents WHERE sandbox = ?;

-- name: ListIntents :many
SELECT * FROM intents ORDER BY started_at;

-- name: InsertEvent :exec
INSERT INTO events (time, project, sandbox, type, reason, cause, data) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: ListEvents :many
SELECT * FROM events WHERE project = @project AND sandbox = @sandbox AND id > @after_id ORDER BY id LIMIT @max_rows;

-- name: ListEventsOfProject :many
SELECT * FROM events WHERE project = @project AND id > @after_id ORDER BY id LIMIT @max_rows;

-- name: OldestEvent :one
SELECT CAST(ifnull(min(id), 0) AS INTEGER) FROM events;

-- name: LastEventBefore :one
SELECT CAST(ifnull(max(id), 0) AS INTEGER) FROM events WHERE time < @before;

-- name: DeleteEventsBeyond :execrows
DELETE FROM events WHERE events.id <= (SELECT max(newest.id) FROM events AS newest) - @keep;

-- name: DeleteEventsBefore :execrows
DELETE FROM events WHERE time < @before;

-- name: InsertKey :execrows
INSERT INTO keys (id, project, name, hash, prefix, admin, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hash) DO NOTHING;

-- name: MakeKeyAdmin :exec
UPDATE keys SET admin = 1 WHERE hash = ?;

-- name: KeyByHash :one
SELECT * FROM keys WHERE hash = ?;

-- name: GetKey :one
SELECT * FROM keys WHERE id = ?;

-- name: ListKeys :many
SELECT * FROM keys WHERE project = ? ORDER BY created_at, id;

-- name: DeleteKey :execrows
DELETE FROM keys WHERE id = ?;

-- name: InsertProject :execrows
INSERT INTO projects (name, max_sandboxes, max_memory_mb, max_disk_mb, created_at) VALUES (?, 0, 0, 0, ?)
ON CONFLICT (name) DO NOTHING;

-- name: SetQuota :execrows
UPDATE projects SET max_sandboxes = @max_sandboxes, max_memory_mb = @max_memory_mb, max_disk_mb = @max_disk_mb WHERE name = @name;

-- name: GetProject :one
SELECT * FROM projects WHERE name = ?;

-- name: ListProjects :many
SELECT * FROM projects ORDER BY name;

-- name: UsageOfProject :one
-- A hibernated sandbox holds its disk only, a snapshot what it takes on the disk. The machine
-- that a restore starts takes the place of another of the project.
SELECT CAST(ifnull(sum(state <> 'hibernated'), 0) AS INTEGER) AS sandboxes,
    CAST(ifnull(sum(iif(state <> 'hibernated', memory_mb, 0)), 0) AS INTEGER) AS memory_mb,
    CAST(ifnull(sum(disk_mb), 0) + (SELECT ifnull(sum((size_bytes + 1048575) / 1048576), 0)
        FROM snapshots WHERE snapshots.project = @project) AS INTEGER) AS disk_mb
FROM sandboxes WHERE sandboxes.project = @project AND state NOT IN ('stopped', 'failed') AND origin <> 'restore';

-- name: UsageOfNode :one
SELECT CAST(ifnull(sum(state <> 'hibernated'), 0) AS INTEGER) AS sandboxes,
    CAST(ifnull(sum(iif(state <> 'hibernated', memory_mb, 0)), 0) AS INTEGER) AS memory_mb,
    CAST(ifnull(sum(disk_mb), 0) + (SELECT ifnull(sum((size_bytes + 1048575) / 1048576), 0)
        FROM snapshots WHERE snapshots.node = @node) AS INTEGER) AS disk_mb
FROM sandboxes WHERE sandboxes.node = @node AND state NOT IN ('stopped', 'failed');

-- name: GetAnswer :one
SELECT request, answer FROM idempotency WHERE scope = @scope AND key = @key AND created_at > @since;

-- name: PutAnswer :exec
INSERT INTO idempotency (scope, key, request, answer, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (scope, key) DO UPDATE SET request = excluded.request, answer = excluded.answer, created_at = excluded.created_at;

-- name: DeleteAnswersBefore :execrows
DELETE FROM idempotency WHERE created_at < @before;

-- name: SandboxOfIdempotency :one
SELECT * FROM sandboxes
WHERE project = @project AND idempotency = @idempotency AND idempotency <> '' AND created_at > @since
  AND state NOT IN ('creating', 'stopping', 'stopped', 'failed')
LIMIT 1;

-- name: SandboxesOfIdempotency :many
SELECT * FROM sandboxes
WHERE project = @project AND idempotency = @idempotency AND idempotency <> '' AND created_at > @since
  AND state NOT IN ('creating', 'stopping', 'stopped', 'failed')
ORDER BY created_at, id;

-- name: SetRetention :execrows
UPDATE projects SET retain_hibernated_ms = @retain_hibernated_ms, retain_spaces_ms = @retain_spaces_ms,
    retain_checkpoints_ms = @retain_checkpoints_ms WHERE name = @name;

-- name: InsertSnapshot :exec
INSERT INTO snapshots (id, project, region, node, sandbox, use, kind, state, name, template, template_hash,
    vcpus, memory_mb, disk_mb, isolation, settings, size_bytes, idempotency, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: SetSnapshotState :execrows
-- The state in the condition is the compare-and-swap. A size below 0 stays what it is.
UPDATE snapshots SET state = @next_state, size_bytes = iif(@size_bytes < 0, size_bytes, @size_bytes)
WHERE id = @id AND state = @state;

-- name: DeleteSnapshot :execrows
DELETE FROM snapshots WHERE id = @id AND state = 'deleting';

-- name: GetSnapshot :one
SELECT * FROM snapshots WHERE id = @id AND project = @project AND use = @use;

-- name: GetSnapshotForChange :one
SELECT * FROM snapshots WHERE id = @id;

-- name: SnapshotsOfNode :many
SELECT * FROM snapshots WHERE node = @node ORDER BY created_at, id;

-- name: UnsettledSnapshots :many
SELECT * FROM snapshots WHERE node = @node AND state <> 'ready' ORDER BY created_at, id;

-- name: ListSnapshots :many
-- The page before (before_time, before_id), newest first; an empty sandbox means all of the project.
SELECT * FROM snapshots
WHERE project = @project AND use = @use AND state = 'ready' AND (sandbox = @sandbox OR @sandbox = '')
  AND (created_at < @before_time OR (created_at = @before_time AND id < @before_id))
ORDER BY created_at DESC, id DESC
LIMIT @max_rows;

-- name: CountCheckpoints :one
SELECT count(*) FROM snapshots
WHERE sandbox = @sandbox AND use = 'checkpoint' AND kind = @kind AND state <> 'deleting';

-- name: CountNamed :one
SELECT count(*) FROM snapshots WHERE sandbox = @sandbox AND use = @use AND name = @name AND state <> 'deleting';

-- name: OldestCheckpoints :many
SELECT * FROM snapshots
WHERE sandbox = @sandbox AND use = 'checkpoint' AND kind = @kind AND state = 'ready'
ORDER BY created_at, id LIMIT @max_rows;

-- name: SnapshotOfIdempotency :one
SELECT * FROM snapshots
WHERE project = @project AND idempotency = @idempotency AND idempotency <> '' AND created_at > @since AND state = 'ready'
LIMIT 1;

-- name: MoveCheckpoints :exec
-- A name that the new sandbox has already gets the snapshot's id behind it.
UPDATE snapshots SET sandbox = @to_sandbox, name = iif(name <> '' AND EXISTS (
        SELECT 1 FROM snapshots AS other WHERE other.sandbox = @to_sandbox AND other.use = 'checkpoint' AND other.name = snapshots.name
            AND other.state <> 'deleting'), substr(name, 1, 31) || '-' || id, name)
WHERE snapshots.sandbox = @from_sandbox AND snapshots.use = 'checkpoint';

-- name: ProjectsWithSnapshots :many
SELECT DISTINCT project FROM snapshots WHERE node = @node;

-- name: SnapshotsBefore :many
SELECT * FROM snapshots
WHERE node = @node AND project = @project AND use = @use AND state = 'ready' AND created_at < @before
ORDER BY created_at, id LIMIT @max_rows;

-- name: CountStates :many
SELECT state, count(*) AS n FROM sandboxes WHERE node = @node AND state <> 'stopped' GROUP BY state;

-- name: PutSecret :exec
INSERT INTO secrets (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING;

-- name: GetSecret :one
SELECT value FROM secrets WHERE name = ?;

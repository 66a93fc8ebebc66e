-- name: InsertSandbox :exec
INSERT INTO sandboxes (id, project, region, node, template, template_hash, state, fail_reason, unresponsive_since,
    instance, vcpus, memory_mb, disk_mb, isolation, egress, env, metadata, created_at, updated_at, idempotency,
    idle_timeout_ms, max_lifetime_ms, egress_policy)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: UpdateSandbox :execrows
-- The state in the condition is the compare-and-swap of every transition.
UPDATE sandboxes SET template_hash = @template_hash, state = @next_state, fail_reason = @fail_reason,
    unresponsive_since = @unresponsive_since, instance = @instance, vcpus = @vcpus, memory_mb = @memory_mb,
    disk_mb = @disk_mb, isolation = @isolation, egress = @egress, env = @env, metadata = @metadata, updated_at = @updated_at,
    idle_timeout_ms = @idle_timeout_ms, max_lifetime_ms = @max_lifetime_ms, egress_policy = @egress_policy
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
ORDER BY created_at DESC, id DESC
LIMIT @max_rows;

-- name: CountOnTemplate :one
SELECT count(*) FROM sandboxes WHERE template = @template AND state NOT IN ('stopped', 'failed');

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
-- A hibernated sandbox holds its disk only.
SELECT CAST(ifnull(sum(state <> 'hibernated'), 0) AS INTEGER) AS sandboxes,
    CAST(ifnull(sum(iif(state <> 'hibernated', memory_mb, 0)), 0) AS INTEGER) AS memory_mb,
    CAST(ifnull(sum(disk_mb), 0) AS INTEGER) AS disk_mb
FROM sandboxes WHERE project = @project AND state NOT IN ('stopped', 'failed');

-- name: UsageOfNode :one
SELECT CAST(ifnull(sum(state <> 'hibernated'), 0) AS INTEGER) AS sandboxes,
    CAST(ifnull(sum(iif(state <> 'hibernated', memory_mb, 0)), 0) AS INTEGER) AS memory_mb,
    CAST(ifnull(sum(disk_mb), 0) AS INTEGER) AS disk_mb
FROM sandboxes WHERE node = @node AND state NOT IN ('stopped', 'failed');

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

-- name: CountStates :many
SELECT state, count(*) AS n FROM sandboxes WHERE node = @node AND state <> 'stopped' GROUP BY state;

-- +goose Up

-- Where a sandbox came from and where it went; ids are empty for none.
ALTER TABLE sandboxes ADD COLUMN persistent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN snapshot TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN merged_into TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN hibernation TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN boot_note TEXT NOT NULL DEFAULT '';

-- Memory and disks that are kept. A row is there before anything of its snapshot is on the
-- disk, and goes after all of it has: what is on the disk and has no row is garbage.
-- They outlive the sandboxes that they were made of.
CREATE TABLE snapshots (
    id            TEXT NOT NULL PRIMARY KEY,
    project       TEXT NOT NULL,
    region        TEXT NOT NULL,
    node          TEXT NOT NULL,
    sandbox       TEXT NOT NULL,
    use           TEXT NOT NULL, -- hibernation, checkpoint, space
    kind          TEXT NOT NULL, -- full, disk
    state         TEXT NOT NULL, -- making, ready, deleting
    name          TEXT NOT NULL,
    template      TEXT NOT NULL,
    template_hash TEXT NOT NULL,
    vcpus         INTEGER NOT NULL,
    memory_mb     INTEGER NOT NULL,
    disk_mb       INTEGER NOT NULL,
    isolation     TEXT NOT NULL,
    settings      TEXT NOT NULL, -- JSON object
    size_bytes    INTEGER NOT NULL,
    idempotency   TEXT NOT NULL,
    created_at    INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX snapshots_by_name ON snapshots (sandbox, use, name) WHERE name <> '' AND state <> 'deleting';
CREATE INDEX snapshots_by_age ON snapshots (project, use, created_at DESC, id DESC);
CREATE INDEX snapshots_by_template ON snapshots (template);
CREATE INDEX snapshots_unsettled ON snapshots (node, state) WHERE state <> 'ready';
CREATE INDEX snapshots_by_idempotency ON snapshots (idempotency) WHERE idempotency <> '';

-- How long hibernated sandboxes, Spaces and checkpoints are kept, in milliseconds: 0 is the
-- server's default, below 0 is for ever.
ALTER TABLE projects ADD COLUMN retain_hibernated_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN retain_spaces_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE projects ADD COLUMN retain_checkpoints_ms INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE projects DROP COLUMN retain_checkpoints_ms;
ALTER TABLE projects DROP COLUMN retain_spaces_ms;
ALTER TABLE projects DROP COLUMN retain_hibernated_ms;
DROP TABLE snapshots;
ALTER TABLE sandboxes DROP COLUMN boot_note;
ALTER TABLE sandboxes DROP COLUMN hibernation;
ALTER TABLE sandboxes DROP COLUMN merged_into;
ALTER TABLE sandboxes DROP COLUMN snapshot;
ALTER TABLE sandboxes DROP COLUMN parent;
ALTER TABLE sandboxes DROP COLUMN origin;
ALTER TABLE sandboxes DROP COLUMN persistent;

-- +goose Up

-- Times are microseconds since 1970. Ids are 32 hexadecimal digits.

CREATE TABLE sandboxes (
    id                 TEXT NOT NULL PRIMARY KEY,
    project            TEXT NOT NULL,
    region             TEXT NOT NULL,
    node               TEXT NOT NULL,
    template           TEXT NOT NULL,
    template_hash      TEXT NOT NULL,
    state              TEXT NOT NULL,
    fail_reason        TEXT NOT NULL,
    unresponsive_since INTEGER NOT NULL, -- 0: it answers
    instance           TEXT NOT NULL,
    vcpus              INTEGER NOT NULL,
    memory_mb          INTEGER NOT NULL,
    disk_mb            INTEGER NOT NULL,
    isolation          TEXT NOT NULL,
    egress             INTEGER NOT NULL,
    env                TEXT NOT NULL,    -- JSON object
    metadata           TEXT NOT NULL,    -- JSON object
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL
) STRICT;

CREATE INDEX sandboxes_by_age ON sandboxes (project, created_at DESC, id DESC);
CREATE INDEX sandboxes_by_instance ON sandboxes (instance);
CREATE INDEX sandboxes_by_state ON sandboxes (state, updated_at);
CREATE INDEX sandboxes_by_template ON sandboxes (template, state);

CREATE TABLE keys (
    id         TEXT NOT NULL PRIMARY KEY,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    hash       BLOB NOT NULL UNIQUE, -- SHA-256 of the secret, which is stored nowhere
    prefix     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX keys_by_age ON keys (project, created_at);

-- What is being done to a sandbox. Written with the change that begins an
-- operation, removed with the change that ends it: what is here at a start of
-- the server was cut short, and the log says so. What is then done follows from
-- the sandbox's state alone.
CREATE TABLE intents (
    sandbox    TEXT NOT NULL PRIMARY KEY REFERENCES sandboxes (id) ON DELETE CASCADE,
    operation  TEXT NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;

-- What happened. Events outlive the records that they are about.
CREATE TABLE events (
    id      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    time    INTEGER NOT NULL,
    project TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    type    TEXT NOT NULL,
    reason  TEXT NOT NULL,
    data    TEXT NOT NULL -- JSON object
) STRICT;

CREATE INDEX events_by_sandbox ON events (project, sandbox, id);
CREATE INDEX events_by_time ON events (time);

-- +goose Down
DROP TABLE events;
DROP TABLE intents;
DROP TABLE keys;
DROP TABLE sandboxes;

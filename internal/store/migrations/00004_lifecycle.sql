-- +goose Up

-- Milliseconds, 0 for none. Idle counts from the end of the last call, the lifetime from the create.
ALTER TABLE sandboxes ADD COLUMN idle_timeout_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN max_lifetime_ms INTEGER NOT NULL DEFAULT 0;

-- One word for programs: what brought the event about.
ALTER TABLE events ADD COLUMN cause TEXT NOT NULL DEFAULT '';
CREATE INDEX events_by_project ON events (project, id);

-- +goose Down
DROP INDEX events_by_project;
ALTER TABLE events DROP COLUMN cause;
ALTER TABLE sandboxes DROP COLUMN max_lifetime_ms;
ALTER TABLE sandboxes DROP COLUMN idle_timeout_ms;

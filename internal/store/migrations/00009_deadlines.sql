-- +goose Up

-- When a sandbox that runs ends unless somebody gives it more time; 0: never. How long that is
-- from its start or a wake on, in milliseconds, what then becomes of it ('' is a delete), and
-- whether traffic to its ports leaves it asleep once it hibernates.
ALTER TABLE sandboxes ADD COLUMN ends_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN end_after_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN at_end TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN manual_wake INTEGER NOT NULL DEFAULT 0;

-- Whether its ports are reached with the token of its traffic only.
ALTER TABLE sandboxes ADD COLUMN private_ports INTEGER NOT NULL DEFAULT 0;

-- What the server made up for itself and keeps: the seed of the tokens of traffic to sandboxes.
CREATE TABLE secrets (
    name  TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- +goose Down
DROP TABLE secrets;
ALTER TABLE sandboxes DROP COLUMN private_ports;
ALTER TABLE sandboxes DROP COLUMN manual_wake;
ALTER TABLE sandboxes DROP COLUMN at_end;
ALTER TABLE sandboxes DROP COLUMN end_after_ms;
ALTER TABLE sandboxes DROP COLUMN ends_at;

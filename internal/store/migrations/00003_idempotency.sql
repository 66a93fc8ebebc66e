-- +goose Up

-- Answers to calls that were made with an Idempotency-Key, for a day. An answer is
-- sealed with what only its caller has (its API key and the idempotency key), since it
-- may hold a secret.
CREATE TABLE idempotency (
    scope      TEXT NOT NULL, -- id of the API key
    key        BLOB NOT NULL, -- SHA-256 of the idempotency key
    request    BLOB NOT NULL, -- SHA-256 of what was asked
    answer     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- What a sandbox was asked for with: it answers for its create when the server
-- ended before the answer could be kept.
ALTER TABLE sandboxes ADD COLUMN idempotency TEXT NOT NULL DEFAULT '';
CREATE INDEX sandboxes_by_idempotency ON sandboxes (idempotency) WHERE idempotency <> '';

-- +goose Down
DROP INDEX sandboxes_by_idempotency;
ALTER TABLE sandboxes DROP COLUMN idempotency;
DROP TABLE idempotency;

-- +goose Up

-- Who owns sandboxes and keys, and how much of the server each may use. A limit of 0
-- is the server's default, one below 0 is no limit.
CREATE TABLE projects (
    name          TEXT NOT NULL PRIMARY KEY,
    max_sandboxes INTEGER NOT NULL,
    max_memory_mb INTEGER NOT NULL,
    max_disk_mb   INTEGER NOT NULL,
    created_at    INTEGER NOT NULL
) STRICT;

INSERT INTO projects (name, max_sandboxes, max_memory_mb, max_disk_mb, created_at)
SELECT project, 0, 0, 0, CAST(unixepoch() AS INTEGER) * 1000000
FROM (SELECT 'default' AS project UNION SELECT project FROM keys UNION SELECT project FROM sandboxes);

-- An admin key makes projects, and keys of any project.
ALTER TABLE keys ADD COLUMN admin INTEGER NOT NULL DEFAULT 0;

-- What is promised is summed up from the records at every create: there is no
-- counter that could drift. These make that cheap.
CREATE INDEX sandboxes_live ON sandboxes (project, memory_mb, disk_mb) WHERE state NOT IN ('stopped', 'failed');
CREATE INDEX sandboxes_of_node ON sandboxes (node, memory_mb, disk_mb) WHERE state NOT IN ('stopped', 'failed');

-- +goose Down
DROP INDEX sandboxes_of_node;
DROP INDEX sandboxes_live;
ALTER TABLE keys DROP COLUMN admin;
DROP TABLE projects;

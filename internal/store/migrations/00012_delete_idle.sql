-- +goose Up

-- Whether a sandbox is deleted when its idle timeout is over, instead of hibernating.
ALTER TABLE sandboxes ADD COLUMN delete_idle INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN delete_idle;

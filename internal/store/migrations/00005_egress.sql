-- +goose Up

-- What of the outside a sandbox may reach, as a JSON object: the lists "allow" and "deny"
-- and the word "order". {} is everything. It means nothing where egress is 0.
ALTER TABLE sandboxes ADD COLUMN egress_policy TEXT NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN egress_policy;

-- +goose Up

-- Events of a topic are counted without holes: the last one has the number
-- n + removed.
ALTER TABLE feed_topic ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;

-- The latest event of every key.
CREATE INDEX feed_event_key ON feed_event (topic, key, id) WHERE key <> '';

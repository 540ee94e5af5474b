-- +goose Up

-- Topics that have been empty for long are removed. What is left of all of them are
-- two numbers: the highest id that was removed from any, and the count of the longest.
-- A topic that is made later, perhaps not for the first time, begins there, so that
-- whoever knew it before learns that events are missing.
ALTER TABLE feed_log ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
ALTER TABLE feed_log ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;

-- How many topics there are, so that nobody has to count them.
ALTER TABLE feed_log ADD COLUMN topics INTEGER NOT NULL DEFAULT 0;
UPDATE feed_log SET topics = (SELECT count(*) FROM feed_topic);

-- Since when a topic has been seen to be empty, in nanoseconds since 1970, and its
-- last id as it was then: if it has another one by now, it was not empty all the time.
ALTER TABLE feed_topic ADD COLUMN empty_at INTEGER;
ALTER TABLE feed_topic ADD COLUMN empty_last INTEGER;

-- The highest id that was removed from any topic.
CREATE INDEX feed_topic_trimmed ON feed_topic (trimmed);

-- Processes of before may be at work, and make topics as they did.
-- +goose StatementBegin
CREATE TRIGGER feed_topic_made AFTER INSERT ON feed_topic BEGIN
    UPDATE feed_topic SET trimmed = forgotten, removed = counted FROM feed_log WHERE id = new.id AND forgotten > 0;
    UPDATE feed_log SET topics = topics + 1;
END;
-- +goose StatementEnd

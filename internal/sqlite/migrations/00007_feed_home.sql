-- +goose Up

-- Which file of the file system the log was last used in. A copy is another file:
-- whoever puts one back begins another log.
ALTER TABLE feed_log ADD COLUMN home TEXT NOT NULL DEFAULT '';

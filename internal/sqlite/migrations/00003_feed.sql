-- +goose Up

-- The log of events. There is one, and epoch names it.
CREATE TABLE feed_log (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    epoch TEXT    NOT NULL,
    head  INTEGER NOT NULL DEFAULT 0 -- id of the last event that was ever published
);
INSERT INTO feed_log (one, epoch) VALUES (1, lower(hex(randomblob(8))));

CREATE TABLE feed_topic (
    id      INTEGER PRIMARY KEY,
    name    TEXT    NOT NULL UNIQUE,
    n       INTEGER NOT NULL DEFAULT 0, -- events that are kept
    bytes   INTEGER NOT NULL DEFAULT 0, -- their size
    last    INTEGER NOT NULL DEFAULT 0, -- id of the newest ever
    trimmed INTEGER NOT NULL DEFAULT 0  -- highest id that was removed
);

-- AUTOINCREMENT, so that an id is never used again after a deletion. There is
-- one writer at a time, so the order of ids is that of commits.
CREATE TABLE feed_event (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    topic INTEGER NOT NULL REFERENCES feed_topic (id),
    time  INTEGER NOT NULL, -- nanoseconds since 1970
    size  INTEGER NOT NULL,
    type  TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    data  TEXT    NOT NULL
);
CREATE INDEX feed_event_topic ON feed_event (topic, id);

CREATE TABLE feed_idempotency (
    topic INTEGER NOT NULL REFERENCES feed_topic (id),
    key   TEXT    NOT NULL,
    id    INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID;
CREATE INDEX feed_idempotency_at ON feed_idempotency (topic, at);
CREATE INDEX feed_idempotency_id ON feed_idempotency (topic, id);

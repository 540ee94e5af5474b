-- +goose Up

-- One collaboration session, and how far each of its parts has come.
CREATE TABLE mailbox (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    signals INTEGER NOT NULL DEFAULT 0, -- sequence of the last signal
    notes   INTEGER NOT NULL DEFAULT 0, -- sequence of the last note
    board   INTEGER NOT NULL DEFAULT 0, -- changes of the whiteboard
    agents  INTEGER NOT NULL DEFAULT 0  -- changes of the members and their status
);
INSERT INTO mailbox (one) VALUES (1);

CREATE TABLE mailbox_agent (
    id         TEXT    PRIMARY KEY,
    harness    TEXT    NOT NULL,
    substrate  TEXT    NOT NULL,
    run        TEXT    NOT NULL, -- SHA-256 of the run token
    status     TEXT    NOT NULL,
    registered INTEGER NOT NULL, -- nanoseconds since 1970, here and below
    seen       INTEGER NOT NULL,
    -- limits of its own, 0 for those of the session
    signals     INTEGER NOT NULL DEFAULT 0,
    escalations INTEGER NOT NULL DEFAULT 0,
    tokens      INTEGER NOT NULL DEFAULT 0,
    -- the bucket of what it sent
    spent    REAL    NOT NULL DEFAULT 0,
    spent_at INTEGER NOT NULL DEFAULT 0,
    -- everything up to floor that is addressed to it is read
    floor      INTEGER NOT NULL DEFAULT 0,
    considered INTEGER NOT NULL DEFAULT 0, -- for escalation
    turn       TEXT    NOT NULL DEFAULT '', -- the escalated turn that it is in
    turn_until INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- There is one writer at a time, so the order of sequences is that of commits.
CREATE TABLE mailbox_signal (
    seq       INTEGER PRIMARY KEY,
    id        TEXT    NOT NULL UNIQUE,
    time      INTEGER NOT NULL,
    sender    TEXT    NOT NULL,
    recipient TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    priority  TEXT    NOT NULL,
    depth     INTEGER NOT NULL,
    reply_to  TEXT    NOT NULL,
    metadata  TEXT    NOT NULL, -- empty for none
    content   TEXT    NOT NULL
);
CREATE INDEX mailbox_signal_recipient ON mailbox_signal (recipient, seq);
CREATE INDEX mailbox_signal_sender ON mailbox_signal (sender, seq);

-- Who has read what. Reads are per recipient.
CREATE TABLE mailbox_read (
    seq   INTEGER NOT NULL REFERENCES mailbox_signal (seq) ON DELETE CASCADE,
    agent TEXT    NOT NULL REFERENCES mailbox_agent (id) ON DELETE CASCADE,
    at    INTEGER NOT NULL,
    PRIMARY KEY (seq, agent)
) WITHOUT ROWID;

CREATE TABLE mailbox_note (
    seq    INTEGER PRIMARY KEY,
    time   INTEGER NOT NULL,
    author TEXT    NOT NULL,
    text   TEXT    NOT NULL
);

CREATE TABLE mailbox_entry (
    key        TEXT    PRIMARY KEY,
    value      TEXT    NOT NULL,
    updated_by TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;

-- The escalations of the last minute.
CREATE TABLE mailbox_escalation (
    id    TEXT    PRIMARY KEY,
    agent TEXT    NOT NULL,
    at    INTEGER NOT NULL
) WITHOUT ROWID;

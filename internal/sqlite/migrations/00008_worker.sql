-- +goose Up

-- Sessions of the tool channel. Those that are over are numbered in the order in
-- which they ended; the oldest of them are removed.
CREATE TABLE worker_session (
    id     TEXT    PRIMARY KEY,
    owner  TEXT    NOT NULL,
    epoch  INTEGER NOT NULL,
    ended  INTEGER, -- NULL while it lives
    record TEXT    NOT NULL -- JSON
) WITHOUT ROWID;
CREATE INDEX worker_session_ended ON worker_session (ended) WHERE ended IS NOT NULL;

-- Hosts of sessions, and until when each counts as alive.
CREATE TABLE worker_host (
    owner TEXT    PRIMARY KEY,
    addr  TEXT    NOT NULL,
    image TEXT    NOT NULL,
    until INTEGER NOT NULL -- milliseconds since 1970
) WITHOUT ROWID;

-- What happened to sessions, for operators. It outlives them within its own bounds.
CREATE TABLE worker_audit (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT    NOT NULL,
    time    INTEGER NOT NULL, -- milliseconds since 1970
    entry   TEXT    NOT NULL -- JSON
);
CREATE INDEX worker_audit_session ON worker_audit (session, seq);
CREATE INDEX worker_audit_time ON worker_audit (time);

-- +goose Up

-- Sessions. One that was never saved has entries and no description (saved = 0).
CREATE TABLE agent_session (
    id           INTEGER PRIMARY KEY,
    name         TEXT    NOT NULL UNIQUE,
    saved        INTEGER NOT NULL DEFAULT 0,
    profile      TEXT    NOT NULL DEFAULT '',
    dir          TEXT    NOT NULL DEFAULT '',
    agent        TEXT    NOT NULL DEFAULT '',
    conversation TEXT    NOT NULL DEFAULT '',
    created_at   INTEGER,            -- all times are nanoseconds since 1970
    updated_at   INTEGER,
    first        INTEGER NOT NULL DEFAULT 1, -- number of the oldest entry that is kept
    last         INTEGER NOT NULL DEFAULT 0, -- number of the newest entry
    bytes        INTEGER NOT NULL DEFAULT 0, -- size of the kept entries
    touched      INTEGER NOT NULL            -- greater than that of every session touched before
);
CREATE INDEX agent_session_touched ON agent_session (touched);

-- Entries of transcripts, numbered first to last without holes. The long fields
-- have columns, so that they are kept byte by byte; body is the rest, as JSON.
CREATE TABLE agent_entry (
    session INTEGER NOT NULL REFERENCES agent_session (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    text    TEXT    NOT NULL,
    input   BLOB,
    output  BLOB,
    PRIMARY KEY (session, seq)
);

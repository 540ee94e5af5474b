-- +goose Up

-- Tokens that were given out. Of the token itself only the hash is kept.
CREATE TABLE token (
    id      TEXT    PRIMARY KEY,
    name    TEXT    NOT NULL,
    hash    BLOB    NOT NULL UNIQUE,
    rights  TEXT    NOT NULL, -- JSON
    created INTEGER NOT NULL, -- milliseconds since 1970
    expires INTEGER,
    revoked INTEGER
) WITHOUT ROWID;

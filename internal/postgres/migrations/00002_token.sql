-- +goose Up

-- Tokens that were given out. Of the token itself only the hash is kept.
CREATE TABLE ossicle.token (
    id      text        COLLATE "C" PRIMARY KEY,
    name    text        NOT NULL,
    hash    bytea       NOT NULL UNIQUE,
    rights  text        NOT NULL, -- JSON
    created timestamptz NOT NULL,
    expires timestamptz,
    revoked timestamptz
);

-- +goose Up

-- What is kept of the tokens that were given out: never the token itself.
CREATE TABLE ossicle.token (
    id      text        COLLATE "C" PRIMARY KEY,
    name    text        NOT NULL,
    hash    bytea       NOT NULL UNIQUE,
    rights  bytea       NOT NULL, -- JSON
    created timestamptz NOT NULL,
    expires timestamptz,
    revoked timestamptz
);

-- +goose Up

-- Addressees. The number stands for the name in the other tables.
CREATE TABLE notice_agent (
    id            INTEGER PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    registered_at INTEGER NOT NULL, -- all times are nanoseconds since 1970
    fence         INTEGER NOT NULL DEFAULT 0,
    hold_reason   TEXT    NOT NULL DEFAULT '',
    hold_at       INTEGER NOT NULL DEFAULT 0
);

-- state is the rank of notice.State: 0 persisted, 1 notified, 2 woken,
-- 3 suppressed, 4 expired, 5 dead, 6 seen, 7 acked. Below 3 it is pending.
-- AUTOINCREMENT, so that seq is never used again after a deletion.
CREATE TABLE notice (
    seq           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE,
    agent         INTEGER NOT NULL REFERENCES notice_agent (id) ON DELETE CASCADE,
    source        TEXT    NOT NULL,
    title         TEXT    NOT NULL,
    text          TEXT    NOT NULL,
    meta          TEXT,             -- a JSON object, if there is any
    created_at    INTEGER NOT NULL,
    dedupe_key    TEXT    NOT NULL,
    depth         INTEGER NOT NULL,
    kept_at       INTEGER NOT NULL,
    state         INTEGER NOT NULL DEFAULT 0,
    state_at      INTEGER NOT NULL,
    offers        INTEGER NOT NULL DEFAULT 0,
    route         INTEGER NOT NULL DEFAULT 0,
    tries         INTEGER NOT NULL DEFAULT 0,
    due           INTEGER,          -- NULL: never of itself
    claim         TEXT,
    claim_adapter TEXT,
    claim_wake    INTEGER,
    claim_until   INTEGER
);
CREATE INDEX notice_due   ON notice (agent, route, due, seq) WHERE state < 3;
CREATE INDEX notice_kept  ON notice (agent, kept_at, seq)    WHERE state < 3;
CREATE INDEX notice_done  ON notice (agent, state_at, seq)   WHERE state >= 3;
CREATE INDEX notice_state ON notice (agent, state, seq);
CREATE INDEX notice_claim ON notice (agent, claim)           WHERE claim IS NOT NULL;

CREATE TABLE notice_step (
    notice  INTEGER NOT NULL REFERENCES notice (seq) ON DELETE CASCADE,
    n       INTEGER NOT NULL,
    state   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    adapter TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    PRIMARY KEY (notice, n)
) WITHOUT ROWID;

-- Dedupe keys outlive their notices.
CREATE TABLE notice_key (
    agent INTEGER NOT NULL REFERENCES notice_agent (id) ON DELETE CASCADE,
    key   TEXT    NOT NULL,
    id    TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (agent, key)
) WITHOUT ROWID;
CREATE INDEX notice_key_at ON notice_key (agent, at);

CREATE TABLE notice_spend (
    agent  INTEGER NOT NULL REFERENCES notice_agent (id) ON DELETE CASCADE,
    at     INTEGER NOT NULL,
    wakes  INTEGER NOT NULL,
    tokens INTEGER NOT NULL
);
CREATE INDEX notice_spend_at ON notice_spend (agent, at);

-- How many notices are in which state, so that nobody has to count them.
CREATE TABLE notice_count (
    agent INTEGER NOT NULL REFERENCES notice_agent (id) ON DELETE CASCADE,
    state INTEGER NOT NULL,
    n     INTEGER NOT NULL,
    PRIMARY KEY (agent, state)
) WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER notice_count_insert AFTER INSERT ON notice BEGIN
    INSERT INTO notice_count (agent, state, n) VALUES (new.agent, new.state, 1)
        ON CONFLICT (agent, state) DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER notice_count_update AFTER UPDATE OF state ON notice WHEN new.state <> old.state BEGIN
    UPDATE notice_count SET n = n - 1 WHERE agent = old.agent AND state = old.state;
    INSERT INTO notice_count (agent, state, n) VALUES (new.agent, new.state, 1)
        ON CONFLICT (agent, state) DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER notice_count_delete AFTER DELETE ON notice BEGIN
    UPDATE notice_count SET n = n - 1 WHERE agent = old.agent AND state = old.state;
END;
-- +goose StatementEnd

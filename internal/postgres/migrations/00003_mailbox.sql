-- +goose Up

-- Collaboration sessions, and how far each part of one has come. The row of a
-- session is what its writers queue for, so the order of sequences is that of
-- commits. Texts that may have any character are bytea: text has no NUL.
CREATE TABLE ossicle.mailbox (
    session text   COLLATE "C" PRIMARY KEY,
    signals bigint NOT NULL DEFAULT 0, -- sequence of the last signal
    notes   bigint NOT NULL DEFAULT 0, -- sequence of the last note
    board   bigint NOT NULL DEFAULT 0, -- changes of the whiteboard
    agents  bigint NOT NULL DEFAULT 0  -- changes of the members and their status
);

CREATE TABLE ossicle.mailbox_agent (
    session     text    COLLATE "C" NOT NULL REFERENCES ossicle.mailbox ON DELETE CASCADE,
    id          text    COLLATE "C" NOT NULL,
    harness     text    NOT NULL,
    substrate   text    NOT NULL,
    run         text    NOT NULL, -- SHA-256 of the run token
    status      text    NOT NULL,
    registered  bigint  NOT NULL, -- nanoseconds since 1970, here and below
    seen        bigint  NOT NULL,
    signals     integer NOT NULL DEFAULT 0, -- limits of its own, 0 for those of the session
    escalations integer NOT NULL DEFAULT 0,
    tokens      integer NOT NULL DEFAULT 0,
    spent       double precision NOT NULL DEFAULT 0, -- the bucket of what it sent
    spent_at    bigint  NOT NULL DEFAULT 0,
    floor       bigint  NOT NULL DEFAULT 0, -- everything up to there that is addressed to it is read
    considered  bigint  NOT NULL DEFAULT 0, -- for escalation
    turn        text    NOT NULL DEFAULT '', -- the escalated turn that it is in
    turn_until  bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (session, id)
);

CREATE TABLE ossicle.mailbox_signal (
    session   text    COLLATE "C" NOT NULL REFERENCES ossicle.mailbox ON DELETE CASCADE,
    seq       bigint  NOT NULL,
    id        text    COLLATE "C" NOT NULL,
    time      bigint  NOT NULL,
    sender    text    COLLATE "C" NOT NULL,
    recipient text    COLLATE "C" NOT NULL,
    type      text    NOT NULL,
    priority  text    NOT NULL,
    depth     integer NOT NULL,
    reply_to  text    NOT NULL,
    metadata  text    NOT NULL, -- empty for none
    content   bytea   NOT NULL,
    PRIMARY KEY (session, seq),
    UNIQUE (session, id)
);
CREATE INDEX mailbox_signal_recipient ON ossicle.mailbox_signal (session, recipient, seq);
CREATE INDEX mailbox_signal_sender ON ossicle.mailbox_signal (session, sender, seq);

CREATE TABLE ossicle.mailbox_read (
    session text   COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    agent   text   COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (session, seq, agent),
    FOREIGN KEY (session, seq) REFERENCES ossicle.mailbox_signal ON DELETE CASCADE
);

CREATE TABLE ossicle.mailbox_note (
    session text   COLLATE "C" NOT NULL REFERENCES ossicle.mailbox ON DELETE CASCADE,
    seq     bigint NOT NULL,
    time    bigint NOT NULL,
    author  text   NOT NULL,
    text    bytea  NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE TABLE ossicle.mailbox_entry (
    session    text   COLLATE "C" NOT NULL REFERENCES ossicle.mailbox ON DELETE CASCADE,
    key        bytea  NOT NULL,
    value      bytea  NOT NULL,
    updated_by text   NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (session, key)
);

-- The escalations of the last minute.
CREATE TABLE ossicle.mailbox_escalation (
    session text   COLLATE "C" NOT NULL REFERENCES ossicle.mailbox ON DELETE CASCADE,
    id      text   COLLATE "C" NOT NULL,
    agent   text   COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (session, id)
);

-- +goose Up

-- A signal is done when nobody has still to acknowledge it; done and done_bytes of
-- the session are how many there are. What was sent before counts as not done until
-- somebody looks.
ALTER TABLE mailbox_signal ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mailbox_signal ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
UPDATE mailbox_signal SET size = length(CAST(content AS BLOB)) + length(CAST(metadata AS BLOB));
CREATE INDEX mailbox_signal_done ON mailbox_signal (seq) WHERE done = 1;
CREATE INDEX mailbox_signal_waiting ON mailbox_signal (sender, seq) WHERE done = 0;

ALTER TABLE mailbox ADD COLUMN done INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mailbox ADD COLUMN done_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mailbox ADD COLUMN note_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE mailbox SET note_bytes = (SELECT coalesce(sum(length(CAST(text AS BLOB))), 0) FROM mailbox_note);

-- What a member has sent that is not done, and how many signals to it were removed
-- before it had read them.
ALTER TABLE mailbox_agent ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mailbox_agent ADD COLUMN waiting_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mailbox_agent ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;
UPDATE mailbox_agent SET waiting = (SELECT count(*) FROM mailbox_signal s WHERE s.sender = mailbox_agent.id),
    waiting_bytes = (SELECT coalesce(sum(s.size), 0) FROM mailbox_signal s WHERE s.sender = mailbox_agent.id);
CREATE INDEX mailbox_agent_seen ON mailbox_agent (seen);

-- +goose Up

-- In the order of writers, which queue at the session first: processes of before may
-- be at work, and neither side is to deadlock with the other.
LOCK TABLE ossicle.mailbox, ossicle.mailbox_agent, ossicle.mailbox_signal IN ACCESS EXCLUSIVE MODE;

-- A signal is done when nobody has still to acknowledge it; done and done_bytes of
-- the session are how many there are. What was sent before counts as not done until
-- somebody looks.
ALTER TABLE ossicle.mailbox_signal ADD COLUMN size bigint NOT NULL DEFAULT 0, ADD COLUMN done boolean NOT NULL DEFAULT false;
UPDATE ossicle.mailbox_signal SET size = length(content) + octet_length(metadata);
CREATE INDEX mailbox_signal_done ON ossicle.mailbox_signal (session, seq) WHERE done;
CREATE INDEX mailbox_signal_waiting ON ossicle.mailbox_signal (session, sender, seq) WHERE NOT done;

ALTER TABLE ossicle.mailbox ADD COLUMN done bigint NOT NULL DEFAULT 0, ADD COLUMN done_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN note_bytes bigint NOT NULL DEFAULT 0;
UPDATE ossicle.mailbox b SET note_bytes = (SELECT coalesce(sum(length(n.text)), 0) FROM ossicle.mailbox_note n WHERE n.session = b.session);

-- What a member has sent that is not done, and how many signals to it were removed
-- before it had read them.
ALTER TABLE ossicle.mailbox_agent ADD COLUMN waiting bigint NOT NULL DEFAULT 0, ADD COLUMN waiting_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN missed bigint NOT NULL DEFAULT 0;
UPDATE ossicle.mailbox_agent a SET
    waiting = (SELECT count(*) FROM ossicle.mailbox_signal s WHERE s.session = a.session AND s.sender = a.id),
    waiting_bytes = (SELECT coalesce(sum(s.size), 0) FROM ossicle.mailbox_signal s WHERE s.session = a.session AND s.sender = a.id);
CREATE INDEX mailbox_agent_seen ON ossicle.mailbox_agent (session, seen);

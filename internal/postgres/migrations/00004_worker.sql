-- +goose Up

-- Sessions of the tool channel. Those that are over are numbered in the order in
-- which they ended; the oldest of them are removed.
CREATE SEQUENCE ossicle.worker_ended;
CREATE TABLE ossicle.worker_session (
    id     text   COLLATE "C" PRIMARY KEY,
    owner  text   COLLATE "C" NOT NULL,
    epoch  bigint NOT NULL,
    ended  bigint, -- null while it lives
    record text   NOT NULL -- JSON
);
CREATE INDEX worker_session_live ON ossicle.worker_session (owner) WHERE ended IS NULL;
CREATE INDEX worker_session_ended ON ossicle.worker_session (ended) WHERE ended IS NOT NULL;

-- worker_prune removes all but the newest of those that are over. What others are
-- about to remove is left to them.
-- +goose StatementBegin
CREATE FUNCTION ossicle.worker_prune(newest bigint, keep bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM ossicle.worker_session WHERE id IN (
        SELECT id FROM ossicle.worker_session WHERE ended <= newest - keep ORDER BY ended LIMIT 1000 FOR UPDATE SKIP LOCKED)
$$;
-- +goose StatementEnd

-- worker_create adds a record, unless its id exists.
-- +goose StatementBegin
CREATE FUNCTION ossicle.worker_create(id_ text, owner_ text, epoch_ bigint, final boolean, keep bigint, record_ text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number bigint := CASE WHEN final THEN nextval('ossicle.worker_ended') END;
BEGIN
    INSERT INTO ossicle.worker_session (id, owner, epoch, ended, record)
    VALUES (id_, owner_, epoch_, number, record_) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF final THEN
        PERFORM ossicle.worker_prune(number, keep);
    END IF;
    RETURN true;
END $$;
-- +goose StatementEnd

-- worker_save replaces a record of the epoch that is known: 1. Otherwise it has
-- another one, 0, or there is none, -1.
-- +goose StatementBegin
CREATE FUNCTION ossicle.worker_save(id_ text, known bigint, owner_ text, epoch_ bigint, final boolean, keep bigint, record_ text) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    UPDATE ossicle.worker_session
    SET owner = owner_, epoch = epoch_, record = record_, ended = CASE WHEN final THEN coalesce(ended, nextval('ossicle.worker_ended')) END
    WHERE id = id_ AND epoch = known RETURNING ended INTO number;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM ossicle.worker_session WHERE id = id_) THEN 0 ELSE -1 END;
    END IF;
    IF final THEN
        PERFORM ossicle.worker_prune(number, keep);
    END IF;
    RETURN 1;
END $$;
-- +goose StatementEnd

-- Hosts of sessions, and until when each counts as alive by the clock of the server.
CREATE TABLE ossicle.worker_host (
    owner text        COLLATE "C" PRIMARY KEY,
    addr  text        NOT NULL,
    image text        NOT NULL,
    until timestamptz NOT NULL
);

-- worker_announce says that a host lives, and returns whether it did not until now.
-- Hosts that are dead for longer than keep milliseconds are forgotten.
-- +goose StatementBegin
CREATE FUNCTION ossicle.worker_announce(owner_ text, addr_ text, image_ text, ttl bigint, keep bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_   timestamptz := clock_timestamp();
    before timestamptz;
BEGIN
    SELECT until INTO before FROM ossicle.worker_host WHERE owner = owner_ FOR UPDATE;
    INSERT INTO ossicle.worker_host (owner, addr, image, until) VALUES (owner_, addr_, image_, now_ + ttl * interval '1 millisecond')
    ON CONFLICT (owner) DO UPDATE SET addr = excluded.addr, image = excluded.image, until = excluded.until;
    DELETE FROM ossicle.worker_host WHERE owner IN (
        SELECT owner FROM ossicle.worker_host WHERE until < now_ - keep * interval '1 millisecond' FOR UPDATE SKIP LOCKED);
    RETURN before IS NULL OR before <= now_;
END $$;
-- +goose StatementEnd

-- What happened to sessions, for operators. It outlives them within its own bounds.
CREATE TABLE ossicle.worker_audit (
    seq     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session text        COLLATE "C" NOT NULL,
    time    timestamptz NOT NULL,
    entry   text        NOT NULL -- JSON
);
CREATE INDEX worker_audit_session ON ossicle.worker_audit (session, seq);
CREATE INDEX worker_audit_time ON ossicle.worker_audit (time);

-- worker_audit_append adds entries and forgets what is beyond the bounds; age and
-- times are in milliseconds. Writers queue, so that a reader that follows by seq
-- misses none.
-- +goose StatementBegin
CREATE FUNCTION ossicle.worker_audit_append(sessions text[], times bigint[], entries text[], of_one bigint, of_all bigint, age bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE ossicle.worker_audit IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO ossicle.worker_audit (session, time, entry)
    SELECT u.session, to_timestamp(u.time / 1000.0), u.entry
    FROM unnest(sessions, times, entries) WITH ORDINALITY AS u (session, time, entry, n) ORDER BY u.n;
    DELETE FROM ossicle.worker_audit a USING (SELECT DISTINCT s.session FROM unnest(sessions) AS s (session)) AS grew
    WHERE a.session = grew.session AND a.seq <= (
        SELECT b.seq FROM ossicle.worker_audit b WHERE b.session = grew.session ORDER BY b.seq DESC OFFSET of_one LIMIT 1);
    DELETE FROM ossicle.worker_audit WHERE seq <= (SELECT max(seq) FROM ossicle.worker_audit) - of_all;
    DELETE FROM ossicle.worker_audit WHERE time < clock_timestamp() - age * interval '1 millisecond';
END $$;
-- +goose StatementEnd

-- +goose Up

-- The log of events. There is one, and epoch names it. Whoever adds to it holds
-- the lock of this row, so the order of ids is that of the commits.
--
-- home and writer tell whether this is still the database that wrote the row: a
-- restored dump has been written by another transaction than it says, and a
-- standby that took over, or a cluster set back in time, is on another timeline.
CREATE TABLE ossicle.feed_log (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch  text    NOT NULL,
    head   bigint  NOT NULL, -- id of the last event that was ever published
    home   text    NOT NULL, -- cluster, timeline, database
    writer bigint  NOT NULL  -- the transaction that wrote this version of the row: its xmin
) WITH (fillfactor = 20);

CREATE TABLE ossicle.feed_topic (
    name    text   COLLATE "C" PRIMARY KEY,
    n       bigint NOT NULL, -- events that are kept
    bytes   bigint NOT NULL, -- their size
    last    bigint NOT NULL, -- id of the newest ever
    trimmed bigint NOT NULL DEFAULT 0, -- highest id that was removed
    removed bigint NOT NULL DEFAULT 0  -- events that were removed: the last one is number n + removed of its topic
) WITH (fillfactor = 50);

CREATE TABLE ossicle.feed_event (
    id    bigint      PRIMARY KEY,
    topic text        COLLATE "C" NOT NULL,
    time  timestamptz NOT NULL,
    size  integer     NOT NULL,
    type  text        NOT NULL,
    key   text        NOT NULL,
    data  text        NOT NULL,
    loose boolean     NOT NULL -- data is JSON as this server spells it, with blanks
);
CREATE INDEX feed_event_topic ON ossicle.feed_event (topic, id);
-- The latest event of every key.
CREATE INDEX feed_event_key ON ossicle.feed_event (topic, key, id) WHERE key <> '';

CREATE TABLE ossicle.feed_idempotency (
    topic text        COLLATE "C" NOT NULL,
    key   text        COLLATE "C" NOT NULL,
    id    bigint      NOT NULL,
    at    timestamptz NOT NULL,
    PRIMARY KEY (topic, key)
);
CREATE INDEX feed_idempotency_at ON ossicle.feed_idempotency (topic, at);
CREATE INDEX feed_idempotency_id ON ossicle.feed_idempotency (topic, id);

-- What triggers have written and no drain has moved into the log.
CREATE TABLE ossicle.feed_outbox (
    id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic text        COLLATE "C" NOT NULL,
    type  text        NOT NULL,
    key   text        NOT NULL,
    data  text        NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

-- The tables whose changes are captured, each by the function capture_<id>.
CREATE TABLE ossicle.feed_capture (
    id      bigint PRIMARY KEY,
    topic   text   NOT NULL,
    columns text[] NOT NULL,
    key     text[] NOT NULL,
    ops     text[] NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_home() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    cluster text := '';
BEGIN
    IF has_function_privilege('pg_control_system()', 'EXECUTE') THEN
        SELECT system_identifier INTO cluster FROM pg_control_system();
    END IF;
    RETURN cluster || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database());
END $$;
-- +goose StatementEnd

-- feed_begin locks the log until the end of the transaction and returns its head.
-- If the database is not the one that the log was written in, another log begins
-- here; its ids go on.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_begin() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    here   text := ossicle.feed_home();
    mine   bigint := pg_current_xact_id()::text::bigint;
    found_ record;
BEGIN
    SELECT l.head, l.home = here AND l.writer & 4294967295 = l.xmin::text::bigint AS same INTO found_
    FROM ossicle.feed_log l FOR NO KEY UPDATE;
    IF found_.same THEN
        RETURN found_.head;
    END IF;
    INSERT INTO ossicle.feed_log AS l (epoch, head, home, writer)
    SELECT left(replace(gen_random_uuid()::text, '-', ''), 16), coalesce(max(id), 0), here, mine FROM ossicle.feed_event
    ON CONFLICT (one) DO UPDATE
    SET epoch = EXCLUDED.epoch, head = greatest(l.head, EXCLUDED.head), home = EXCLUDED.home, writer = EXCLUDED.writer
    RETURNING head INTO found_;
    RETURN found_.head;
END $$;
-- +goose StatementEnd

-- feed_renew begins another log if this one has gone back before what somebody
-- has seen of it: the files of the server were put back.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_renew(seen_epoch text, seen bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM ossicle.feed_begin();
    UPDATE ossicle.feed_log
    SET epoch = left(replace(gen_random_uuid()::text, '-', ''), 16), writer = pg_current_xact_id()::text::bigint
    WHERE epoch = seen_epoch AND head < seen;
END $$;
-- +goose StatementEnd

-- feed_append publishes drafts. It returns a row for each, in their order.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_append(topics text[], types text[], keys text[], datas text[], idems text[])
RETURNS TABLE (event_id bigint, repeated boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start bigint := ossicle.feed_begin();
    now_  timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH draft AS MATERIALIZED (
        SELECT u.*, i.id AS known, CASE WHEN u.idem = '' THEN u.n ELSE min(u.n) OVER (PARTITION BY u.topic, u.idem) END AS first
        FROM unnest(topics, types, keys, datas, idems) WITH ORDINALITY AS u (topic, type, key, data, idem, n)
        LEFT JOIN ossicle.feed_idempotency i ON u.idem <> '' AND i.topic = u.topic AND i.key = u.idem
    ), fresh AS MATERIALIZED (
        SELECT d.*, start + row_number() OVER (ORDER BY d.n) AS id, octet_length(d.data) + octet_length(d.type) + octet_length(d.key) AS size
        FROM draft d WHERE d.known IS NULL AND d.first = d.n
    ), events AS (
        INSERT INTO ossicle.feed_event (id, topic, time, size, type, key, data, loose)
        SELECT f.id, f.topic, now_, f.size, f.type, f.key, f.data, false FROM fresh f ORDER BY f.id
    ), idempotent AS (
        INSERT INTO ossicle.feed_idempotency (topic, key, id, at)
        SELECT f.topic, f.idem, f.id, now_ FROM fresh f WHERE f.idem <> ''
    ), counted AS (
        INSERT INTO ossicle.feed_topic AS t (name, n, bytes, last)
        SELECT f.topic, count(*), sum(f.size), max(f.id) FROM fresh f GROUP BY f.topic
        ON CONFLICT (name) DO UPDATE SET n = t.n + EXCLUDED.n, bytes = t.bytes + EXCLUDED.bytes, last = EXCLUDED.last
    ), log AS (
        UPDATE ossicle.feed_log SET head = start + (SELECT count(*) FROM fresh), writer = pg_current_xact_id()::text::bigint
        WHERE EXISTS (SELECT FROM fresh)
    )
    SELECT coalesce(d.known, f.id), f.n IS DISTINCT FROM d.n FROM draft d LEFT JOIN fresh f ON f.n = d.first ORDER BY d.n;
END $$;
-- +goose StatementEnd

-- feed_drain moves rows with ids after "behind" from the outbox into the log: up to
-- "most" of them and about "weight" bytes. Before it looks it counts the
-- transactions that may yet commit rows, so that one that is not counted is not
-- missed either. Behind "through" there may be rows, before it there are none.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_drain(behind bigint, most bigint, weight bigint)
RETURNS TABLE (moved bigint, writers bigint, through bigint, epoch text, head bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    start bigint;
    upto  bigint;
    n     bigint := 0;
    w     bigint;
    few   bigint;
BEGIN
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO upto FROM ossicle.feed_outbox_id_seq s;
    SELECT count(*) INTO w FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = 'ossicle.feed_outbox'::regclass AND l.mode = 'RowExclusiveLock'
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.pid IS DISTINCT FROM pg_backend_pid();
    IF EXISTS (SELECT FROM ossicle.feed_outbox o WHERE o.id > behind ORDER BY o.id LIMIT 1) THEN
        start := ossicle.feed_begin();
        SELECT greatest(1, count(*)) INTO few FROM (
            SELECT sum(octet_length(o.data)) OVER (ORDER BY o.id) AS total
            FROM (SELECT id, data FROM ossicle.feed_outbox WHERE id > behind ORDER BY id LIMIT most) o
        ) sums WHERE total <= weight;
        WITH gone AS (
            DELETE FROM ossicle.feed_outbox o
            USING (SELECT id FROM ossicle.feed_outbox WHERE id > behind ORDER BY id LIMIT few FOR UPDATE SKIP LOCKED) chosen
            WHERE o.id = chosen.id
            RETURNING o.*
        ), fresh AS MATERIALIZED (
            SELECT g.*, start + row_number() OVER (ORDER BY g.id) AS number, octet_length(g.data) + octet_length(g.type) + octet_length(g.key) AS size
            FROM gone g
        ), events AS (
            INSERT INTO ossicle.feed_event (id, topic, time, size, type, key, data, loose)
            SELECT f.number, f.topic, f.at, f.size, f.type, f.key, f.data, true FROM fresh f ORDER BY f.number
        ), counted AS (
            INSERT INTO ossicle.feed_topic AS t (name, n, bytes, last)
            SELECT f.topic, count(*), sum(f.size), max(f.number) FROM fresh f GROUP BY f.topic
            ON CONFLICT (name) DO UPDATE SET n = t.n + EXCLUDED.n, bytes = t.bytes + EXCLUDED.bytes, last = EXCLUDED.last
        ), log AS (
            UPDATE ossicle.feed_log SET head = start + (SELECT count(*) FROM fresh), writer = pg_current_xact_id()::text::bigint
            WHERE EXISTS (SELECT FROM fresh)
        )
        SELECT count(*) INTO n FROM fresh;
    END IF;
    IF n > 0 OR w > 0 THEN
        upto := behind;
    END IF;
    RETURN QUERY SELECT n, w, upto, l.epoch, l.head FROM ossicle.feed_log l;
END $$;
-- +goose StatementEnd

-- feed_trim removes the oldest events of a topic that are too many, too big or
-- from before "oldest" (null: of any age), and idempotency keys: "most" of each. It
-- reports whether there is more. To lose this in a crash does no harm, so that it
-- does not keep publishers waiting for the disk.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_trim(subject text, keep_n bigint, keep_bytes bigint, oldest timestamptz, most bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t    record;
    cut  record;
    keys bigint;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT n, bytes INTO t FROM ossicle.feed_topic WHERE name = subject FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT max(id) AS id, count(*) AS n, coalesce(sum(size), 0) AS bytes INTO cut FROM (
        SELECT id, size, bool_and(goes) OVER (ORDER BY id) AS goes FROM (
            SELECT id, size,
                (keep_n > 0 AND t.n - row_number() OVER w + 1 > keep_n)
                    OR (keep_bytes > 0 AND t.bytes - sum(size) OVER w + size > keep_bytes)
                    OR (oldest IS NOT NULL AND time < oldest) AS goes
            FROM (SELECT id, size, time FROM ossicle.feed_event WHERE topic = subject ORDER BY id LIMIT most) e
            WINDOW w AS (ORDER BY id)
        ) each
    ) all_ WHERE goes;
    IF cut.n > 0 THEN
        DELETE FROM ossicle.feed_event WHERE topic = subject AND id <= cut.id;
        UPDATE ossicle.feed_topic SET n = n - cut.n, removed = removed + cut.n, bytes = bytes - cut.bytes, trimmed = cut.id WHERE name = subject;
    END IF;
    DELETE FROM ossicle.feed_idempotency i USING (
        SELECT key FROM ossicle.feed_idempotency
        WHERE topic = subject AND CASE
            WHEN oldest IS NOT NULL THEN at < oldest
            ELSE id <= (SELECT trimmed FROM ossicle.feed_topic WHERE name = subject)
        END LIMIT most
    ) old WHERE i.topic = subject AND i.key = old.key;
    GET DIAGNOSTICS keys = ROW_COUNT;
    RETURN cut.n = most OR keys = most;
END $$;
-- +goose StatementEnd

-- feed_rings says whether a writer has to ring. Not if a drain is awake, which
-- holds a lock while it will look again. Not if eight open transactions have
-- promised to: commits that notify queue, and the first of these to end wakes a
-- drain that then waits for all the others. (With one, a transaction that stays
-- open would keep the others silent.) And not while the queue of notifications,
-- which one stuck listener of any database can fill, is so full that ringing might
-- fail. The function is put in the place of its calls, so it must not set a
-- search path.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_rings() RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN pg_catalog.pg_try_advisory_lock_shared(1869837161, 2) THEN pg_catalog.pg_advisory_unlock_shared(1869837161, 2) ELSE false END
        AND pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5::pg_catalog.float8
        AND CASE
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 10) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 11) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 12) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 13) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 14) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 15) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 16) THEN true
            WHEN pg_catalog.pg_try_advisory_xact_lock(1869837161, 17) THEN true
            ELSE false
        END
$$;
-- +goose StatementEnd

-- feed_key makes the key of an event of any text.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_key(k text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN octet_length(k) > 512 OR k ~ E'[\\x01-\\x1f\\x7f-\\x9f]' THEN 'md5:' || md5(k) ELSE k END
$$;
-- +goose StatementEnd

-- feed_record writes to the outbox what is left of a change of which the event
-- would have more than 256 KiB, or of which the columns cannot be taken.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_record(topic text, tbl text, op text, k text, n jsonb, o jsonb, failed boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    body    text;
    omitted jsonb := CASE
        WHEN failed IS NOT TRUE THEN '[]'
        WHEN op = 'insert' THEN '["new"]'
        WHEN op = 'delete' THEN '["old"]'
        ELSE '["new", "old"]'
    END;
BEGIN
    LOOP
        -- What is this big in memory is too big as text, and may not even fit into one.
        IF coalesce(pg_column_size(o), 0) + coalesce(pg_column_size(n), 0) <= 2097152 THEN
            body := (jsonb_build_object('op', op, 'table', tbl)
                || CASE WHEN n IS NULL THEN '{}' ELSE jsonb_build_object('new', n) END
                || CASE WHEN o IS NULL THEN '{}' ELSE jsonb_build_object('old', o) END
                || CASE WHEN omitted = '[]' THEN '{}' ELSE jsonb_build_object('omitted', omitted) END)::text;
            EXIT WHEN octet_length(body) <= 262144;
        END IF;
        IF o IS NOT NULL THEN
            o := NULL;
            omitted := omitted || '["old"]';
        ELSE
            n := NULL;
            omitted := omitted || '["new"]';
        END IF;
    END LOOP;
    INSERT INTO ossicle.feed_outbox (topic, type, key, data) VALUES (topic, op, coalesce(ossicle.feed_key(k), ''), body);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_join(row_ jsonb, columns text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(coalesce(row_ ->> c, ''), '/' ORDER BY n) FROM unnest(columns) WITH ORDINALITY AS u (c, n)
$$;
-- +goose StatementEnd

-- feed_pick takes columns out of a row, where a trigger did not find them as they
-- were when it was made.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_pick(row_ jsonb, columns text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(c, row_ -> c), '{}') FROM unnest(columns) c WHERE row_ ? c
$$;
-- +goose StatementEnd

-- +goose StatementBegin
SELECT ossicle.feed_begin();
-- +goose StatementEnd

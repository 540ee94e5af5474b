-- +goose Up

-- In the order of publishers, which may be at work as they were before.
LOCK TABLE ossicle.feed_log, ossicle.feed_topic IN ACCESS EXCLUSIVE MODE;

-- Topics that have been empty for long are removed. What is left of all of them are
-- two numbers: the highest id that was removed from any, and the count of the longest.
-- A topic that is made later, perhaps not for the first time, begins there, so that
-- whoever knew it before learns that events are missing. topics is how many there are,
-- so that nobody has to count them.
ALTER TABLE ossicle.feed_log ADD COLUMN forgotten bigint NOT NULL DEFAULT 0, ADD COLUMN counted bigint NOT NULL DEFAULT 0,
    ADD COLUMN topics bigint NOT NULL DEFAULT 0;
-- First whether this is still the database that wrote the row, of which it then is.
SELECT ossicle.feed_begin();
UPDATE ossicle.feed_log SET topics = (SELECT count(*) FROM ossicle.feed_topic), writer = pg_current_xact_id()::text::bigint;

-- Since when a topic has been seen to be empty, and its last id as it was then: if it
-- has another one by now, it was not empty all the time.
ALTER TABLE ossicle.feed_topic ADD COLUMN empty_at timestamptz, ADD COLUMN empty_last bigint;
CREATE INDEX feed_topic_trimmed ON ossicle.feed_topic (trimmed);

-- Only who publishes makes topics, under the lock of the log, whose writer it has become
-- by then; who restores a dump is not, and has what it needs. It is a trigger so that
-- processes of before need not know.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_topic_made() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE ossicle.feed_log SET topics = topics + 1 WHERE writer = pg_current_xact_id()::text::bigint;
    IF FOUND THEN
        UPDATE ossicle.feed_topic t SET trimmed = l.forgotten, removed = l.counted FROM ossicle.feed_log l
        WHERE t.name = NEW.name AND l.forgotten > 0;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER feed_topic_made AFTER INSERT ON ossicle.feed_topic FOR EACH ROW EXECUTE FUNCTION ossicle.feed_topic_made();

-- feed_publish is feed_append where there may be so many topics. If the drafts would
-- make more it publishes nothing and returns no row. It counts those that they make
-- only if there might not be room for all.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_publish(names text[], types text[], keys text[], datas text[], idems text[], most bigint)
RETURNS TABLE (event_id bigint, repeated boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    room bigint;
BEGIN
    PERFORM ossicle.feed_begin();
    SELECT most - l.topics INTO room FROM ossicle.feed_log l;
    IF room < cardinality(names) AND room < (
        SELECT count(DISTINCT u.name) FROM unnest(names) AS u (name) WHERE NOT EXISTS (SELECT FROM ossicle.feed_topic t WHERE t.name = u.name)
    ) THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT a.event_id, a.repeated FROM ossicle.feed_append(names, types, keys, datas, idems) a;
END $$;
-- +goose StatementEnd

-- feed_empty are the topics that may go when they have been empty for long: not those
-- to spare, and not those of captured tables.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_empty(spare text[]) RETURNS TABLE (name text, since timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.name, t.empty_at FROM ossicle.feed_topic t
    WHERE t.n = 0 AND t.empty_last = t.last AND t.name <> ALL (spare)
        AND NOT EXISTS (SELECT FROM ossicle.feed_idempotency i WHERE i.topic = t.name)
        AND NOT EXISTS (SELECT FROM ossicle.feed_capture c WHERE c.topic = t.name)
$$;
-- +goose StatementEnd

-- feed_forget removes topics that have been empty for so many microseconds, "most" of
-- them at most. It returns in how many microseconds there are others, 0 for at once, -1
-- for never. Unless there is something to do it does not hold up publishers.
-- +goose StatementBegin
CREATE FUNCTION ossicle.feed_forget(spare text[], empty bigint, most bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_  timestamptz := clock_timestamp();
    until timestamptz := now_ - empty * interval '1 microsecond';
    gone  record;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    IF EXISTS (SELECT FROM ossicle.feed_topic t WHERE t.n = 0 AND t.empty_last IS DISTINCT FROM t.last)
        OR EXISTS (SELECT FROM ossicle.feed_empty(spare) e WHERE e.since <= until)
    THEN
        PERFORM ossicle.feed_begin();
        UPDATE ossicle.feed_topic t SET empty_at = now_, empty_last = t.last WHERE t.n = 0 AND t.empty_last IS DISTINCT FROM t.last;
        WITH old AS (
            DELETE FROM ossicle.feed_topic t WHERE t.name IN (SELECT e.name FROM ossicle.feed_empty(spare) e WHERE e.since <= until ORDER BY e.since LIMIT most)
            RETURNING t.last, t.trimmed, t.removed
        )
        SELECT count(*) AS n, max(greatest(o.last, o.trimmed)) AS trimmed, max(o.removed) AS counted INTO gone FROM old o;
        IF gone.n > 0 THEN
            UPDATE ossicle.feed_log SET topics = topics - gone.n, forgotten = greatest(forgotten, gone.trimmed),
                counted = greatest(counted, gone.counted), writer = pg_current_xact_id()::text::bigint;
        END IF;
        IF gone.n = most THEN
            RETURN 0;
        END IF;
    END IF;
    RETURN coalesce((SELECT greatest(1, ceil(extract(epoch FROM min(e.since) - until) * 1000000)) FROM ossicle.feed_empty(spare) e HAVING count(*) > 0), -1);
END $$;
-- +goose StatementEnd

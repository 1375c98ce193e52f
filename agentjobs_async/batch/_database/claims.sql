-- A claim of a shared journal is one call, and one transaction: the lock that all claims share waits for no client.
-- Each statement below sees what was committed before it began; that needs VOLATILE, and READ COMMITTED.
-- Times are seconds since the epoch by the database's clock, or by `given_now`.

-- What a claim counts: none of these holds more.
CREATE INDEX IF NOT EXISTS agentjobs_items_active ON agentjobs_items (state, project_id)
    WHERE state IN ('sending', 'active');
CREATE INDEX IF NOT EXISTS agentjobs_items_unknown ON agentjobs_items (updated_at) WHERE state = 'unknown';
CREATE INDEX IF NOT EXISTS agentjobs_items_unknown_by_project ON agentjobs_items (project_id, updated_at)
    WHERE state = 'unknown';
-- Items that are planned again, though their chunk may have been done.
CREATE INDEX IF NOT EXISTS agentjobs_items_planned_again ON agentjobs_items (number)
    WHERE state = 'planned' AND revision > 0;
CREATE INDEX IF NOT EXISTS agentjobs_items_by_project ON agentjobs_items (project_id, counted_at)
    WHERE counted_at IS NOT NULL;

CREATE OR REPLACE FUNCTION agentjobs_room(
    its_project text, repeated_key text, given_now double precision,
    OUT wait double precision, OUT of_project text, OUT cause text
) LANGUAGE plpgsql VOLATILE AS $$
-- Return after how many seconds a create of a project may go, null for now; `of_project` where only that one waits.
-- `cause` says what it waits for: 'pause' (of the service), 'max_active' or 'create_rate'.
-- `repeated_key` is the key of the unknown row whose create is to be repeated, null for a planned row.
DECLARE
    skew constant double precision := 60; -- what lies further ahead was recorded by a wrong clock
    retry constant double precision := 0.5; -- until a slot may be free, which nobody can foretell
    moment constant double precision := coalesce(given_now, date_part('epoch', clock_timestamp()));
    limits agentjobs_journal;
    counted bigint;
    kept_after double precision; -- an unknown row counts as active if it became unknown within these two
    kept_before double precision;
    kept bigint;
    kept_by_others bigint;
    remaining bigint;
    last_sent double precision;
BEGIN
    SELECT until - moment INTO wait FROM agentjobs_pauses
        WHERE project_id = its_project AND until > moment AND set_at < moment + skew;
    IF FOUND THEN
        of_project := its_project;
        cause := 'pause';
        RETURN;
    END IF;
    SELECT * INTO limits FROM agentjobs_journal WHERE "only" = 1;

    kept_after := coalesce(moment - limits.unknown_for, '-infinity');
    kept_before := CASE WHEN limits.unknown_for IS NULL THEN 'infinity' ELSE moment + skew END;
    -- Each count ends at its limit, and reads an index that holds nothing else. A row that is repeated and counts as
    -- active until now needs no other room than its own: it would wait for itself.
    IF limits.max_active IS NOT NULL AND NOT EXISTS (
        SELECT FROM agentjobs_items
            WHERE key = repeated_key AND state || '' = 'unknown'
                AND updated_at > kept_after AND updated_at < kept_before
    ) THEN
        SELECT count(*) INTO counted FROM (
            -- Nobody records the end of a job that is followed no more: it would keep its slot for ever.
            SELECT FROM agentjobs_items
                WHERE state IN ('sending', 'active') AND follow <> 'unfollowed'
                LIMIT limits.max_active
        ) AS active;
        SELECT count(*) INTO kept FROM (
            SELECT FROM agentjobs_items
                WHERE state = 'unknown' AND project_id = its_project
                    AND updated_at > kept_after AND updated_at < kept_before
                LIMIT limits.max_active
        ) AS unknown;
        -- All projects together, of which no more is counted than what can decide.
        SELECT greatest(count(*) - kept, 0) INTO kept_by_others FROM (
            SELECT FROM agentjobs_items
                WHERE state = 'unknown' AND updated_at > kept_after AND updated_at < kept_before
                LIMIT kept + limits.max_active / 2
        ) AS unknown;
        IF counted + kept + kept_by_others >= limits.max_active THEN
            wait := retry;
            cause := 'max_active';
            -- Another project, for which all that is kept counts as half of the limit at most, may have room.
            IF counted + least(kept + kept_by_others, limits.max_active / 2) < limits.max_active THEN
                of_project := its_project;
            END IF;
            RETURN;
        END IF;
    END IF;

    IF limits.create_count IS NULL THEN
        RETURN;
    END IF;
    cause := 'create_rate';
    -- Creates under way count whenever they were claimed: the service counts them at some time before their answer.
    -- All others count from their answer on; the one that fills the window has to leave it.
    IF limits.create_scope = 'project' THEN
        of_project := its_project;
        SELECT count(*) INTO counted FROM (
            SELECT FROM agentjobs_items WHERE state = 'sending' AND project_id = its_project
                LIMIT limits.create_count
        ) AS under_way;
        remaining := limits.create_count - counted;
        SELECT counted_at INTO last_sent FROM (
            (SELECT counted_at FROM agentjobs_items
                WHERE project_id = its_project AND counted_at > moment - limits.create_per AND counted_at < moment + skew
                    AND state <> 'sending'
                ORDER BY counted_at DESC LIMIT remaining)
            UNION ALL
            (SELECT counted_at FROM agentjobs_sends
                WHERE project_id = its_project AND counted_at > moment - limits.create_per AND counted_at < moment + skew
                ORDER BY counted_at DESC LIMIT remaining)
        ) AS sends ORDER BY counted_at DESC OFFSET greatest(remaining - 1, 0) LIMIT 1;
    ELSE
        SELECT count(*) INTO counted FROM (
            SELECT FROM agentjobs_items WHERE state = 'sending' LIMIT limits.create_count
        ) AS under_way;
        remaining := limits.create_count - counted;
        SELECT counted_at INTO last_sent FROM (
            (SELECT counted_at FROM agentjobs_items
                WHERE counted_at > moment - limits.create_per AND counted_at < moment + skew AND state <> 'sending'
                ORDER BY counted_at DESC LIMIT remaining)
            UNION ALL
            (SELECT counted_at FROM agentjobs_sends
                WHERE counted_at > moment - limits.create_per AND counted_at < moment + skew
                ORDER BY counted_at DESC LIMIT remaining)
        ) AS sends ORDER BY counted_at DESC OFFSET greatest(remaining - 1, 0) LIMIT 1;
    END IF;
    IF remaining = 0 THEN
        wait := retry;
    ELSIF last_sent IS NOT NULL THEN
        wait := greatest(last_sent + limits.create_per - moment, retry);
    ELSE
        of_project := NULL;
        cause := NULL;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION agentjobs_check_level() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a claim needs the isolation level read committed'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION agentjobs_locked_room(
    its_project text, repeated_key text, given_now double precision,
    OUT wait double precision, OUT of_project text, OUT cause text
) LANGUAGE plpgsql VOLATILE AS $$
-- Return what `agentjobs_room` does, and keep the room until the end of the transaction: other claims wait for it.
BEGIN
    -- First without the lock, so that asking in vain keeps nobody waiting and writes nothing.
    SELECT room.wait, room.of_project, room.cause INTO wait, of_project, cause
        FROM agentjobs_room(its_project, repeated_key, given_now) AS room;
    IF wait IS NOT NULL THEN
        RETURN;
    END IF;
    -- Where there are limits, each claim has to see those before it.
    PERFORM FROM agentjobs_journal
        WHERE "only" = 1 AND (max_active IS NOT NULL OR create_count IS NOT NULL) FOR UPDATE;
    IF FOUND THEN
        SELECT room.wait, room.of_project, room.cause INTO wait, of_project, cause
            FROM agentjobs_room(its_project, repeated_key, given_now) AS room;
    END IF;
END
$$;

-- In both claims below, a row is found by its key alone: with statistics from before many rows were planned, the index
-- of the states would look as good, and reading it takes 30 ms for 200,000 rows. No index has `state || ''`.
-- No earlier change is the last one after them: a statement that made it must not find it when it is executed again.
CREATE OR REPLACE FUNCTION agentjobs_claim(
    its_key text, its_claim text, its_owner text, given_now double precision, its_digest text DEFAULT NULL,
    OUT wait double precision, OUT of_project text, OUT cause text, OUT claimed bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
SET enable_seqscan = off -- statistics that are out of date must not make it read all rows
SET jit = off
AS $$
-- Make a planned row `sending` where the limits leave room: return how many rows were claimed, and `agentjobs_room`.
-- With a digest, its create may be repeated, with the claim as its idempotency key.
DECLARE
    planned_project text;
    moment double precision;
BEGIN
    PERFORM agentjobs_check_level();
    -- A claim that is executed again, since its answer was lost: nothing was sent under it, so it may be unknown by now.
    moment := coalesce(given_now, date_part('epoch', clock_timestamp()));
    UPDATE agentjobs_items SET state = 'sending', owner = its_owner, error = NULL, told_at = NULL, change = NULL,
            sent_at = moment, counted_at = moment, updated_at = moment, changed_at = moment, revision = revision + 1,
            first_sent_at = CASE WHEN digest IS NOT NULL THEN moment END
        WHERE key = its_key AND claim = its_claim AND state || '' IN ('sending', 'unknown');
    GET DIAGNOSTICS claimed = ROW_COUNT;
    IF claimed > 0 THEN
        RETURN;
    END IF;

    SELECT project_id INTO planned_project FROM agentjobs_items
        WHERE key = its_key AND state || '' = 'planned';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT room.wait, room.of_project, room.cause INTO wait, of_project, cause
        FROM agentjobs_locked_room(planned_project, NULL, given_now) AS room;
    IF wait IS NOT NULL THEN
        RETURN;
    END IF;
    moment := coalesce(given_now, date_part('epoch', clock_timestamp()));
    UPDATE agentjobs_items SET state = 'sending', claim = its_claim, owner = its_owner, error = NULL, change = NULL,
            sent_at = moment, counted_at = moment, updated_at = moment, changed_at = moment, revision = revision + 1,
            is_noticed = coalesce(follower = its_owner, false), digest = its_digest,
            idempotency_key = CASE WHEN its_digest IS NOT NULL THEN its_claim END,
            first_sent_at = CASE WHEN its_digest IS NOT NULL THEN moment END
        WHERE key = its_key AND state || '' = 'planned';
    GET DIAGNOSTICS claimed = ROW_COUNT;
EXCEPTION WHEN lock_not_available THEN
    -- Another claim holds the lock for long: its database or disk stands still.
    wait := 1;
    of_project := NULL;
    cause := 'lock';
    claimed := 0;
END
$$;

CREATE OR REPLACE FUNCTION agentjobs_may_repeat(
    item agentjobs_items, its_owner text, its_idempotency_key text, its_digest text,
    its_seconds double precision, moment double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
-- Return whether an owner may repeat the create of an unknown row: it has taken the row, what it would send is what
-- was sent first, no end of a repetition is final, and the service remembers the key for `its_seconds`.
    SELECT item.state || '' = 'unknown' AND item.owner = its_owner AND item.idempotency_key = its_idempotency_key
        AND item.digest = its_digest AND item.refusal IS NULL
        AND item.first_sent_at > moment - its_seconds
        AND item.first_sent_at < moment + 60 -- what lies further ahead was recorded by a wrong clock
$$;

CREATE OR REPLACE FUNCTION agentjobs_repeat(
    its_key text, its_claim text, its_owner text, given_now double precision, its_digest text,
    its_idempotency_key text, its_seconds double precision,
    OUT wait double precision, OUT of_project text, OUT cause text, OUT claimed bigint
) LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1s'
SET enable_seqscan = off
SET jit = off
AS $$
-- Make an unknown row `sending` once more where it may be repeated, as `agentjobs_claim` does with a planned one.
DECLARE
    its_project text;
    moment double precision;
BEGIN
    PERFORM agentjobs_check_level();
    moment := coalesce(given_now, date_part('epoch', clock_timestamp()));
    UPDATE agentjobs_items SET state = 'sending', owner = its_owner, told_at = NULL, change = NULL,
            sent_at = moment, counted_at = moment, updated_at = moment, changed_at = moment, revision = revision + 1
        WHERE key = its_key AND claim = its_claim AND idempotency_key = its_idempotency_key
            AND state || '' IN ('sending', 'unknown');
    GET DIAGNOSTICS claimed = ROW_COUNT;
    IF claimed > 0 THEN
        RETURN;
    END IF;

    SELECT item.project_id INTO its_project FROM agentjobs_items AS item
        WHERE item.key = its_key
            AND agentjobs_may_repeat(item, its_owner, its_idempotency_key, its_digest, its_seconds, moment);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT room.wait, room.of_project, room.cause INTO wait, of_project, cause
        FROM agentjobs_locked_room(its_project, its_key, given_now) AS room;
    IF wait IS NOT NULL THEN
        RETURN;
    END IF;
    moment := coalesce(given_now, date_part('epoch', clock_timestamp()));
    -- A rate counts each POST: the time of the one before is kept apart, since it is overwritten.
    INSERT INTO agentjobs_sends (project_id, counted_at)
        SELECT item.project_id, item.counted_at FROM agentjobs_items AS item
            WHERE item.key = its_key AND item.counted_at IS NOT NULL
                AND agentjobs_may_repeat(item, its_owner, its_idempotency_key, its_digest, its_seconds, moment)
            FOR UPDATE;
    UPDATE agentjobs_items AS item SET state = 'sending', claim = its_claim, told_at = NULL, change = NULL,
            sent_at = moment, counted_at = moment, updated_at = moment, changed_at = moment, revision = revision + 1,
            is_noticed = coalesce(follower = its_owner, false)
        WHERE item.key = its_key
            AND agentjobs_may_repeat(item, its_owner, its_idempotency_key, its_digest, its_seconds, moment);
    GET DIAGNOSTICS claimed = ROW_COUNT;
EXCEPTION WHEN lock_not_available THEN
    wait := 1;
    of_project := NULL;
    cause := 'lock';
    claimed := 0;
END
$$;

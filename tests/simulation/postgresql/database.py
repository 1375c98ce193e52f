"""What the database knows: a trigger records each change of a row, and each heartbeat."""

import json
import time
from typing import Any, Final

from agentjobs_async.batch import Journal, State
from tests.postgresql import execute
from tests.simulation.postgresql.records import Change

_TRIGGERS: Final = """
CREATE TABLE simulation_changes (number bigserial PRIMARY KEY, at double precision, source text, found jsonb);
CREATE FUNCTION simulation_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    shown_only constant text[] := ARRAY['page', 'changed_at', 'updated_at', 'planned_at', 'seen_at', 'polls'];
BEGIN
    IF TG_TABLE_NAME = 'agentjobs_items' AND TG_OP = 'UPDATE' THEN
        IF to_jsonb(OLD) - shown_only = to_jsonb(NEW) - shown_only THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO simulation_changes (at, source, found)
        VALUES (date_part('epoch', clock_timestamp()), TG_TABLE_NAME, to_jsonb(NEW));
    RETURN NULL;
END $$;
CREATE TRIGGER simulation_change AFTER INSERT OR UPDATE ON agentjobs_items
    FOR EACH ROW EXECUTE FUNCTION simulation_change();
CREATE TRIGGER simulation_change AFTER INSERT OR UPDATE OF seen_at ON agentjobs_owners
    FOR EACH ROW EXECUTE FUNCTION simulation_change();
"""
_UNFOLLOWED: Final = "unfollowed"


async def lay_out(location: str) -> None:
    """Make a journal in an empty database, whose changes are recorded from now on."""
    async with Journal.open(location):
        """Opening makes the tables."""
    execute(location, _TRIGGERS)


def recorded(location: str) -> tuple[tuple[Change, ...], tuple[tuple[float, int], ...], str]:
    """Return all changes of rows, all heartbeats with their process numbers, and both as text."""
    past = time.time() - time.monotonic()
    found = execute(location, "SELECT at, source, found FROM simulation_changes ORDER BY number")
    changes = tuple(_change(at - past, row) for at, source, row in found if source == "agentjobs_items")
    beats = tuple((at - past, _process(row["owner"]) or 0) for at, source, row in found if source == "agentjobs_owners")
    return changes, beats, json.dumps([row for _, _, row in found])


def rows_of(location: str) -> list[Change]:
    """Return all rows as they are."""
    now = time.monotonic()
    return [_change(now, row) for (row,) in execute(location, "SELECT to_jsonb(row) FROM agentjobs_items AS row")]


def cut(location: str, program: str) -> None:
    """Break the connections of a program to the database."""
    execute(
        location,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"  # noqa: S608 - our own name
        f" AND application_name = '{program}'",
    )


def _change(at: float, row: dict[str, Any]) -> Change:
    return Change(
        at,
        row["key"],
        row["prompt"],
        row["project_id"],
        State(row["state"]),
        owner=_process(row["owner"]),
        claim=row["claim"],
        job_id=row["job_id"],
        error=row["error"],
        is_followed=row["told_state"] not in (None, _UNFOLLOWED),
        is_unfollowed=row["told_state"] == _UNFOLLOWED,
        tries=row["tries"] or 1,
    )


def _process(owner: str | None) -> int | None:
    """Return the number of a process from the name of an owner, `host:process:…`."""
    parts = (owner or "").split(":")
    return int(parts[-2]) if len(parts) >= 3 and parts[-2].isdigit() else None

"""What the database knows: a trigger records each change of a row, and each heartbeat."""

import json
import time
from typing import Any, Final

from attrs import frozen

from agentjobs_async.batch import Journal, State
from tests.postgresql import execute
from tests.simulation.postgresql.records import Change

_TRIGGERS: Final = """
CREATE TABLE simulation_changes (number bigserial PRIMARY KEY, at double precision, source text, found jsonb);
CREATE FUNCTION simulation_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    shown_only constant text[] := ARRAY[
        'page', 'change', 'revision', 'is_noticed', 'is_notified', 'changed_at', 'updated_at', 'planned_at', 'seen_at',
        'polls'
    ];
BEGIN
    IF TG_TABLE_NAME <> 'agentjobs_owners' AND TG_OP = 'UPDATE' THEN
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
CREATE TRIGGER simulation_change AFTER INSERT OR UPDATE ON agentjobs_tries
    FOR EACH ROW EXECUTE FUNCTION simulation_change();
CREATE TRIGGER simulation_change AFTER INSERT OR UPDATE OF seen_at ON agentjobs_owners
    FOR EACH ROW EXECUTE FUNCTION simulation_change();
"""


async def lay_out(location: str) -> None:
    """Make a journal in an empty database, whose changes are recorded from now on."""
    async with Journal.open(location):
        """Opening makes the tables."""
    execute(location, _TRIGGERS)


@frozen
class Recorded:
    """What the triggers recorded.

    Attributes:
        changes: Of rows.
        tries: Of earlier tries, as they were kept or answered late.
        beats: The heartbeats, each with the number of its process.
        text: All of it.
    """

    changes: tuple[Change, ...]
    tries: tuple[Change, ...]
    beats: tuple[tuple[float, int], ...]
    text: str


def recorded(location: str) -> Recorded:
    """Return all that was recorded."""
    past = time.time() - time.monotonic()
    found = execute(location, "SELECT at, source, found FROM simulation_changes ORDER BY number")
    changes = tuple(_change(at - past, row) for at, source, row in found if source == "agentjobs_items")
    beats = tuple((at - past, _process(row["owner"]) or 0) for at, source, row in found if source == "agentjobs_owners")
    items = {row["number"]: row for _, source, row in found if source == "agentjobs_items"}
    tries = tuple(
        _change(at - past, items[row["item"]] | row | {"tries": row["try_number"]})
        for at, source, row in found
        if source == "agentjobs_tries"
    )
    return Recorded(changes, tries, beats, json.dumps([row for _, _, row in found]))


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
        is_followed=row["follow"] == "yes",
        is_unfollowed=row["follow"] == "unfollowed",
        tries=row["tries"],
        follower=_process(row["follower"]),
        number=row["number"],
    )


def _process(owner: str | None) -> int | None:
    """Return the number of a process from the name of an owner, `host:process:…`."""
    parts = (owner or "").split(":")
    return int(parts[-2]) if len(parts) >= 3 and parts[-2].isdigit() else None

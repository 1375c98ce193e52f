"""Processes on PostgreSQL whose owners have been silent for long, without a test that waits for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from sqlalchemy import true

from agentjobs_async._loop.tasks import until_done
from agentjobs_async.batch import Journal
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.heartbeat import Heartbeat, Instant
from tests.postgresql import execute

NEVER: Final = 600.0
"""Seconds until an owner counts as dead: longer than any machine stands still within a test."""
LONG_AGO: Final = Instant(boot=float("-inf"), wall=float("-inf"))


@contextmanager
def server_is_up() -> Iterator[None]:
    """Let the server count as up for long: after its start, no owner counts as dead for a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "server_is_up_for", lambda _: true())
        yield


def heartbeat_of(journal: Journal) -> Heartbeat:
    heartbeat = journal._opened.heartbeat
    assert heartbeat is not None
    return heartbeat


async def be_silent(journal: Journal, database: str) -> None:
    """Let the owners of a process give no sign of life any more, and have given none for long, as if it was stopped."""
    await stop_beating(journal)
    heartbeat_of(journal)._heard = LONG_AGO
    record_silence(database, journal)


async def stop_beating(journal: Journal) -> None:
    """Let the owners of a process give no sign of life any more."""
    heartbeat = heartbeat_of(journal)
    assert heartbeat._beating is not None
    heartbeat._beating.cancel()
    await until_done({heartbeat._beating})
    # What was asked before may still be executed: a sign of life.
    await heartbeat._database.flush()


def record_silence(database: str, journal: Journal) -> None:
    """Record that the owners of a process gave no sign of life for long."""
    for owner in journal._opened.owners.own:
        execute(database, f"UPDATE agentjobs_owners SET seen_at = 0 WHERE owner = '{owner}'")  # noqa: S608 - our own name

"""When all items of a journal have ended, whichever worker ran them."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal, State
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.store import NOBODY
from agentjobs_async.batch.states import open_in


async def ended_counts(journal: Journal) -> Mapping[State, int] | None:
    """Return how many items ended in which state; `None` while one has not, or while the database is gone.

    An unknown one has not ended while a worker is going to repeat its create.
    """
    with suppress(JournalError):
        counts = await journal.counts()
        repeated = Query(states={State.UNKNOWN}, owned_by_others_than=NOBODY)
        if not open_in(counts) and not await journal.store.count(repeated):
            return counts
    return None


async def stop_at_the_end(journal: Journal, stop: asyncio.Event, seconds: float) -> None:
    """Set `stop` once all items have ended; `seconds` lie between two looks."""
    while await ended_counts(journal) is None:  # noqa: ASYNC110 - other processes end items
        await asyncio.sleep(seconds)
    # The result of an item that has just ended is told after its end is recorded. No longer: the job of an item that
    # was abandoned may never end.
    await asyncio.sleep(seconds)
    stop.set()

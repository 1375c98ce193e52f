"""A journal seen from outside: the processes that work on it, whether they see its active jobs, and when it ends."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from agentjobs_async.batch._database.file_lock import is_owned
from agentjobs_async.batch._estimates import Durations, End, end_of, recent_durations
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.seen import active_silence, silence
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Limits, Rate
from agentjobs_async.batch.states import State

_MOST_ACTIVE: Final = 200  # rows, the oldest: when one of them ends is estimated by its age
_SEEN_SECONDS: Final = 180.0  # since a job was seen: that is recorded each minute; after this time, no process polls it


@frozen
class OwnerState:
    """An owner of a journal at one moment.

    Attributes:
        name: Its host and the number of its process.
        active: How many items it is sending or waiting for.
        silent_for: Seconds since its last heartbeat.
        is_dead: Whether it counts as dead, so that others take over its items.
    """

    name: str
    active: int
    silent_for: float
    is_dead: bool


@frozen
class Outlook:
    """What a journal shows of its end to a process that does not work on it.

    Attributes:
        end: When all of its items have ended; `None` while that is not known.
        usual: The seconds that half of the jobs took at most, and nine of ten; `None` before one has ended.
        unseen_seconds: Seconds since any active job was seen; `None` if so few that a process may poll them.
    """

    end: End | None = None
    usual: tuple[float, float] | None = None
    unseen_seconds: float | None = None


async def owners_of(journal: Journal) -> list[OwnerState] | None:
    """Return the owners of a journal, live and dead; for a file, which names none, `None` while it has one, else `[]`.

    If this process itself has opened the file for writing, the file has an owner only while a run, a worker or durable
    jobs of this process use it.

    Raises:
        JournalError: The journal can't be read.
    """
    store, opened = journal.store, journal._opened
    if isinstance(opened.location, Path):
        is_used = await (asyncio.to_thread(is_owned, opened.location) if journal.read_only else opened.is_used())
        return None if is_used else []
    patience = opened.owner_timeout
    active = await measures.active_counts(store)
    return [
        # The last part of an owner's name only makes it unique.
        OwnerState(owner.rpartition(":")[0] or owner, active.get(owner, 0), age, is_dead=age >= patience)
        for owner, age in await measures.owners(store)
    ]


def is_at_work(owners: Sequence[OwnerState] | None) -> bool:
    """Return whether a process works on the journal; `owners` is what `owners_of` has returned."""
    return owners is None or not all(owner.is_dead for owner in owners)


async def was_seen(journal: Journal, rate: Rate | None) -> bool:
    """Return whether a job was seen of late, or since the rate let a create go: only that shows a service that answers.

    Raises:
        JournalError: The journal can't be read.
    """
    seconds = await silence(journal.store)
    return seconds is not None and seconds < max(_SEEN_SECONDS, 0.0 if rate is None else rate.per)


async def unseen_for(journal: Journal) -> float | None:
    """Return the seconds since any active job was seen; `None` if so few that a process may poll them.

    Raises:
        JournalError: The journal can't be read.
    """
    seconds = await active_silence(journal.store)
    return seconds if seconds is not None and seconds >= _SEEN_SECONDS else None


async def outlook_of(journal: Journal, counts: Mapping[State, int]) -> Outlook:
    """Return when a journal will have ended on which other processes work, as far as it shows that.

    Args:
        journal: The open journal.
        counts: How many of its items are in each state.

    Raises:
        JournalError: The journal can't be read.
    """
    durations = Durations()
    durations.replace(await recent_durations(journal.store))
    usual, unseen_seconds = durations.usual, await unseen_for(journal)
    if unseen_seconds is not None:
        return Outlook(usual=usual, unseen_seconds=unseen_seconds)
    limits = await journal.limits()
    is_known = counts[State.ACTIVE] or await was_seen(journal, limits.create_rate)
    return Outlook(await _end(journal, limits, usual, counts) if is_known else None, usual)


async def _end(
    journal: Journal, limits: Limits, usual: tuple[float, float] | None, counts: Mapping[State, int]
) -> End | None:
    """Return when all items will have ended, by the ages of the oldest jobs; the others count as begun just now."""
    now = time.time()
    rows = await journal.store.select(Query(states={State.ACTIVE}, size=_MOST_ACTIVE))
    ages = [max(now - (row.created_at or row.updated_at).timestamp(), 0.0) for row in rows]
    younger = counts[State.ACTIVE] + counts[State.SENDING] - len(ages)
    return end_of(
        to_create=counts[State.PLANNED],
        queue=await longest_queue(journal, limits, counts),
        ages=[*ages, *[0.0] * max(younger, 0)],
        limits=limits,
        usual=usual,
    )


async def longest_queue(journal: Journal, limits: Limits, counts: Mapping[State, int]) -> int:
    """Return how many planned items share one limit of the rate.

    Raises:
        JournalError: The journal can't be read.
    """
    if limits.create_rate is None or limits.create_rate.scope == "all":
        return counts[State.PLANNED]
    return max((rows for *_, rows in await measures.planned_projects(journal.store, Query())), default=0)

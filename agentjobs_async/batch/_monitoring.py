"""A journal seen from outside: the processes that work on it, and whether they see its active jobs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from agentjobs_async.batch._database.file_lock import is_owned
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.seen import active_silence, silence
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Rate

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


async def owners_of(journal: Journal) -> list[OwnerState] | None:
    """Return the owners of a journal, live and dead; for a file, which names none, `None` while it has one, else `[]`.

    Raises:
        JournalError: The journal can't be read.
    """
    store, opened = journal.store, journal._opened
    if isinstance(opened.location, Path):
        return None if await asyncio.to_thread(is_owned, opened.location) else []
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

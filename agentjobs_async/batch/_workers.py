"""The processes that have a journal open for writing, seen from outside."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from agentjobs_async.batch._store.file_lock import is_owned
from agentjobs_async.batch.journal import Journal


@frozen
class WorkerState:
    """A worker, or any other process that has the journal open, at one moment.

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


async def workers_of(journal: Journal) -> list[WorkerState] | None:
    """Return the owners of a journal, live and dead; for a file, which names none, `None` while it has one, else `[]`.

    Raises:
        JournalError: The journal can't be read.
    """
    entries, opened = journal._entries, journal._opened
    if isinstance(opened.place, Path):
        return None if await asyncio.to_thread(is_owned, opened.place) else []
    patience = opened.owner_timeout
    active = await entries.active_counts()
    return [
        # The last part of an owner's name only makes it unique.
        WorkerState(owner.rpartition(":")[0] or owner, active.get(owner, 0), age, is_dead=age >= patience)
        for owner, age in await entries.owners()
    ]


def is_at_work(workers: Sequence[WorkerState] | None) -> bool:
    """Return whether a process works on the journal; `workers` is what `workers_of` has returned."""
    return workers is None or not all(worker.is_dead for worker in workers)

"""A journal seen from outside: the processes that work on it, and how long its active jobs have left."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from agentjobs_async import Estimate, History
from agentjobs_async.batch._learning import histories_of
from agentjobs_async.batch._store.file_lock import is_owned
from agentjobs_async.batch.journal import Journal
from agentjobs_async.learning.estimate import estimate_many
from agentjobs_async.learning.history import LEAST_DURATIONS

_SEEN_SECONDS: Final = 180.0  # since a job was seen: that is recorded each minute; after this time, no process polls it
_MOST_ACTIVE: Final = 2_000  # jobs: the next ones would change the figures by less than they are worth
_FRESH_SECONDS: Final = 20.0  # for which durations that were read serve: a history of 200 changes slowly


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


class ActiveJobs:
    """The jobs that a journal has as active, seen from outside: how long they have left, by the durations in it.

    Args:
        journal: The open journal.

    Attributes:
        histories: The durations of each project that has at least 20, as they were last read.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._read_at: float | None = None
        self.histories: Mapping[str, History] = {}

    async def time_left(self) -> Estimate | None:
        """Return how long the active jobs have left, taken together; `None` if nothing is known of any of them.

        Those that no process polls are left out: they may have ended.

        Raises:
            JournalError: The journal can't be read.
        """
        active = await self._journal._entries.active_ages(_SEEN_SECONDS, _MOST_ACTIVE)
        if active:
            await self._read()
        known = [(self.histories.get(project), age) for project, age in active]
        return estimate_many([(history, age) for history, age in known if history is not None])

    async def unseen_for(self) -> float | None:
        """Return the seconds since any active job was seen; `None` if so few that a process may poll them.

        Raises:
            JournalError: The journal can't be read.
        """
        seconds = await self._journal._entries.active_silence()
        return seconds if seconds is not None and seconds >= _SEEN_SECONDS else None

    async def _read(self) -> None:
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _FRESH_SECONDS:
            found = await histories_of(self._journal._entries)
            self.histories = {name: history for name, history in found.items() if len(history) >= LEAST_DURATIONS}
            self._read_at = now

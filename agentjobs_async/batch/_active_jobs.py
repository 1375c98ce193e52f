"""The active jobs of a journal, seen from outside."""

import time
from collections.abc import Mapping
from typing import Final

from agentjobs_async import Estimate, History
from agentjobs_async.batch._learning import histories_of
from agentjobs_async.batch.journal import Journal
from agentjobs_async.learning.estimate import estimate_many
from agentjobs_async.learning.history import LEAST_DURATIONS

_SEEN_SECONDS: Final = 180.0  # since a job was seen: that is recorded each minute; after this time, no process polls it
_MOST_ACTIVE: Final = 2_000  # jobs: the next ones would change the figures by less than they are worth
_FRESH_SECONDS: Final = 20.0  # for which durations that were read serve: a history of 200 changes slowly


class ActiveJobs:
    """The jobs that a journal has as active, seen from outside: how long they have left, by the durations in it.

    Args:
        journal: The open journal.

    Attributes:
        histories: The durations of each project of which enough jobs have ended, as they were last read.
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
        known = [(self.histories.get(project or ""), age) for project, age in active]
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
            found = await histories_of(self._journal._entries, None)
            self.histories = {name: history for name, history in found.items() if len(history) >= LEAST_DURATIONS}
            self._read_at = now

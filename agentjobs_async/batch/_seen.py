"""What the journal is told of jobs that are at work: when they were seen last, and how often they were polled."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

from agentjobs_async import JournalError
from agentjobs_async.batch._store.entries import Entries, Seen

_EVERY_SECONDS: Final = 60.0  # a write for each poll would cost more than the poll
_MOST_TOGETHER: Final = 200  # rows of one transaction: more would keep their locks for long


class Polled(Protocol):
    """A row whose job is polled."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def polls(self) -> int:
        """How often the job was polled, by earlier runs and this one."""

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this run last showed the job; `None` before."""


async def record_seen(entries: Entries, under_way: Callable[[], Iterable[Polled]]) -> None:
    """Record each minute, until cancelled, which jobs were seen since the last time."""
    loop = asyncio.get_running_loop()
    recorded = loop.time()
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        since, recorded = recorded, loop.time()
        seen = [
            Seen(item.key, recorded - item.seen, item.polls)
            for item in under_way()
            if item.seen is not None and item.seen > since
        ]
        # A journal that can't be written ends the run by the next write that matters.
        with suppress(JournalError):
            for first in range(0, len(seen), _MOST_TOGETHER):
                await entries.record_seen(seen[first : first + _MOST_TOGETHER])

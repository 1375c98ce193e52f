"""Which rows of a journal have changed, by the times that they have."""

import time
from collections.abc import AsyncIterator
from typing import Final

from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._store.measures import changed, last_change
from agentjobs_async.batch._store.queries import Query

__all__ = ["Changes"]

_OVERLAP_SECONDS: Final = 5.0  # a row may be committed so long after the time that it has
_LATE_LOOK_SECONDS: Final = 60.0  # between two looks for rows that were committed later than that,
_LATE_OVERLAP_SECONDS: Final = 600.0  # but not later than this: a database may be slow, or wait for a lock


class Changes:
    """The rows of a journal that have changed: each question overlaps the one before, and what it finds again is known.

    Args:
        journal: The journal, which has to be open from `begin` on.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last = 0.0  # when the row that was changed last was changed, in seconds since the epoch
        self._known: dict[int, float] = {}  # when each row was changed that is found again, by its number
        self._stamp: object = None  # of the last question, if every later commit changes it
        self._may_be_late = False  # something was written since the last look for late rows
        self._late_look_at = 0.0  # monotonic

    async def begin(self) -> None:
        """Begin with what is there: rows that are read after this call are at least as new."""
        self._known, self._stamp, self._late_look_at = {}, None, time.monotonic()
        self._last = await last_change(self._journal.store)
        async for _ in self._numbers(_LATE_OVERLAP_SECONDS):
            pass

    async def rows(self) -> AsyncIterator[list[JournalRow]]:
        """Yield the rows that have changed since the last call that did not fail.

        They come in lists, the first one empty; none comes where nothing was written.
        """
        store, now = self._journal.store, time.monotonic()
        stamp = await store.stamp()
        is_late_look = self._may_be_late and now - self._late_look_at >= _LATE_LOOK_SECONDS
        if stamp.value == self._stamp and not is_late_look:
            return
        yield []
        async for numbers in self._numbers(_LATE_OVERLAP_SECONDS if is_late_look else _OVERLAP_SECONDS):
            for page in pages_of(numbers):
                yield await store.select(Query(numbers=page, size=None))
        if is_late_look:
            self._late_look_at, since = now, self._since(_LATE_OVERLAP_SECONDS)
            self._known = {number: changed_at for number, changed_at in self._known.items() if changed_at >= since}
        # After the rows were read: if that failed, the next call has to read them.
        self._stamp = stamp.value if stamp.is_settled else None
        self._may_be_late = not (is_late_look and stamp.is_settled)

    async def _numbers(self, overlap: float) -> AsyncIterator[list[int]]:
        """Yield the numbers of the rows that have changed, in lists: each is known once the next one is asked for."""
        since, after = self._since(overlap), 0
        while found := await changed(self._journal.store, since, after):
            yield [number for number, changed_at in found if self._known.get(number) != changed_at]
            self._known.update(found)
            self._last = max(self._last, *(changed_at for _, changed_at in found))
            after = found[-1][0]

    def _since(self, overlap: float) -> float:
        # A time in the future was recorded by a clock that was wrong: later changes have earlier times.
        return min(self._last, time.time()) - overlap

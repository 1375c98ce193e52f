"""The figures of all rows of a journal, as these change."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.figures import Counted, Figures, Tally

__all__ = ["RunningFigures"]

_REST_PER_SECOND: Final = 4.0  # counting very many rows takes at most a fifth of the time


class RunningFigures:
    """The figures of rows, each counted once, as it was last. It contains the numbers of the rows that it counts."""

    def __init__(self) -> None:
        self._counted: dict[int, Counted] = {}
        self._figures = Figures(Counter())
        self._is_current = True
        self._rests_until = 0.0  # monotonic

    def __contains__(self, number: int) -> bool:
        return number in self._counted

    @property
    def latest(self) -> Figures:
        """The figures as they were computed last."""
        return self._figures

    def count(self, rows: Iterable[JournalRow]) -> None:
        """Count rows, in place of what they were."""
        self._counted.update((row.number, Counted.of(row)) for row in rows)
        self._is_current = False

    def clear(self) -> None:
        """Count no row any more."""
        self._counted.clear()
        self._is_current = False

    async def current(self) -> Figures:
        """Return the figures as they are; with very many rows, as they were some seconds ago."""
        started = time.monotonic()
        if not self._is_current and started >= self._rests_until:
            self._is_current = True  # before the copy: what is counted while the thread runs is not in it
            self._figures = await asyncio.to_thread(_figures_of, list(self._counted.values()))
            ended = time.monotonic()
            self._rests_until = ended + _REST_PER_SECOND * (ended - started)
        return self._figures


def _figures_of(rows: Iterable[Counted]) -> Figures:
    tally = Tally()
    for row in rows:
        tally.add(row)
    return tally.figures(time.time())

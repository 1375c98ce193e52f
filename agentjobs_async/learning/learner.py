"""One history and what follows from it: the table of gaps, made anew now and then, and the test for drift."""

from collections.abc import Sequence
from math import inf
from random import uniform
from typing import Final

from agentjobs_async.learning.drift import DriftTest
from agentjobs_async.learning.gaps import GapTable
from agentjobs_async.learning.history import LEAST_DURATIONS, History

__all__ = ["Learner"]

_RENEWED_EVERY: Final = 20  # durations
_RENEWED_AFTER_SECONDS: Final = 1.0  # at least: a table takes some 10 ms to make, and ends may come fast


class Learner:
    """Keeps the gaps of one kind of jobs up to date with their history.

    Args:
        history: Read, added to, and cleared when the durations have changed.
        polls_per_job: As in `wait_learned`.

    Attributes:
        cells: As of `GapTable`; empty while there are fewer than 20 durations.
        renewed_at: How many durations must have been added to the history for new cells.
    """

    __slots__ = ("_drift", "_due", "_polls_per_job", "cells", "history", "renewed_at")

    def __init__(self, history: History, polls_per_job: float | None) -> None:
        self.history = history
        self.cells: Sequence[tuple[float, float]] = ()
        self.renewed_at = 0
        self._polls_per_job = polls_per_job
        self._drift: DriftTest | None = None
        self._due = -inf
        """Loop time before which no table is made."""

    def renew(self, now: float) -> None:
        """Make the gaps anew at the loop time `now`, if enough durations were added since."""
        history = self.history
        if history.added < self.renewed_at or now < self._due:
            return
        if len(history) < LEAST_DURATIONS:
            self.cells = ()
            self.renewed_at = history.added + LEAST_DURATIONS - len(history)
            return
        self.cells = GapTable(history.survival_for_waits(), self._polls_per_job).cells
        self.renewed_at = history.added + _RENEWED_EVERY
        self._due = now + _RENEWED_AFTER_SECONDS

    def learn(self, earliest: float, latest: float) -> int:
        """Add a duration; return how many durations were dropped since they differ from what the jobs take now."""
        if self._drift is None:
            self._drift = DriftTest()
            for low, high in self.history:
                if high < inf:
                    self._drift.know(uniform(low, high))  # noqa: S311 - no secret
        self.history.add(earliest, latest)
        if latest == inf or not self._drift.add(uniform(earliest, latest)):  # noqa: S311 - no secret
            return 0
        dropped = len(self.history)
        self.history.clear()
        self._drift, self.cells, self.renewed_at = None, (), 0
        return dropped

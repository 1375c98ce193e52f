"""One history and what follows from it: the table of gaps, made anew now and then, and the test for drift."""

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
    """

    __slots__ = ("_drift", "_due", "_next", "_polls_per_job", "_table", "history")

    def __init__(self, history: History, polls_per_job: float | None) -> None:
        self.history = history
        self._polls_per_job = polls_per_job
        self._drift: DriftTest | None = None
        self._table: GapTable | None = None
        self._next = 0
        """How many durations must have been added for the next table."""
        self._due = -inf
        """Loop time before which no table is made."""

    def table(self, now: float) -> GapTable | None:
        """Return the gaps as of the loop time `now`; `None` while there are fewer than 20 durations."""
        if self.history.added >= self._next and now >= self._due:
            self._renew(now)
        return self._table

    def _renew(self, now: float) -> None:
        history = self.history
        if len(history) < LEAST_DURATIONS:
            self._table = None
            self._next = history.added + LEAST_DURATIONS - len(history)
            return
        self._table = GapTable(history.survival(), self._polls_per_job)
        self._next = history.added + _RENEWED_EVERY
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
        self._drift, self._table, self._next = None, None, 0
        return dropped

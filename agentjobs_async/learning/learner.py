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
        begun: How many waits had begun before this learner was made. No bets are made on their durations: of these
            jobs, only those that end late would be seen.

    Attributes:
        begun: As above; after the history was dropped, how many waits had begun by then.
        cells: As of `GapTable`; empty while there are fewer than 20 durations.
        renewed_at: How many durations must have been added to the history for new cells.
    """

    __slots__ = ("_drift", "_due", "_polls_per_job", "begun", "cells", "history", "renewed_at")

    def __init__(self, history: History, polls_per_job: float | None, begun: int = 0) -> None:
        self.begun = begun
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

    @property
    def drift(self) -> DriftTest:
        """The test. It knows what the history held when the test was first used."""
        if self._drift is None:
            ended = ((low, high) for low, high in self.history if high < inf)
            self._drift = DriftTest(uniform(low, high) for low, high in ended)  # noqa: S311 - no secret
        return self._drift

    def add(self, earliest: float, latest: float) -> None:
        """Add a duration to the history, in the order of the ends."""
        _ = self.drift  # made before the history holds the duration: a bet on it may follow
        self.history.add(earliest, latest)

    def bet(self, earliest: float, latest: float) -> bool:
        """Bet on a duration, in the order of the starts; return whether the history no longer holds.

        A job that was not seen to end says nothing, unless it was seen active beyond the horizon of the test.
        """
        drift = self.drift
        if latest < inf:
            return drift.add(uniform(earliest, latest))  # noqa: S311 - no secret
        return earliest > drift.horizon and drift.add(earliest)

    def drop(self, begun: int) -> int:
        """Drop all durations and return how many there were; no bets are made on the first `begun` waits any more."""
        dropped = len(self.history)
        self.history.clear()
        self._drift, self.cells, self.renewed_at, self.begun = None, (), 0, begun
        return dropped

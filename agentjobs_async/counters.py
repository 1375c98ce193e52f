"""What a tracker is doing: counters kept as it goes, never a scan."""

from typing import Final

from attrs import frozen

__all__ = ["Counters", "TrackerStats"]

_WINDOW: Final = 10


@frozen
class TrackerStats:
    """A snapshot of a tracker.

    Attributes:
        jobs: How many jobs are watched now.
        due: How many of them wait for a place to be polled.
        in_flight: How many polls are under way.
        polls: How many polls were answered so far, well or badly.
        errors: How many of them failed.
        rate: Polls per second over the last 10 s.
        oldest_unobserved: Seconds since the job that was seen least recently was seen, or its wait began; accurate to
            1 s, and 0 without jobs.
    """

    jobs: int
    due: int
    in_flight: int
    polls: int
    errors: int
    rate: float
    oldest_unobserved: float


class Counters:
    """Counts polls, and the watched jobs by the second of the loop's time in which they were last observed.

    Attributes:
        second: The current second, as far as anybody said; a job's own is in its `observed`.
    """

    __slots__ = ("_ends", "_observed", "_recent", "_started", "errors", "polls", "second")

    def __init__(self) -> None:
        self.polls = 0
        self.errors = 0
        self.second = 0
        self._ends = 0.0
        self._started: float | None = None
        self._observed: dict[int, int] = {}
        self._recent: dict[int, int] = {}

    def count_poll(self, now: float) -> None:
        """Count an answered poll."""
        if now >= self._ends:
            self._turn(now)
        self.polls += 1

    def _turn(self, now: float) -> None:
        """Begin a new second."""
        if not self._observed.get(self.second, 1):
            del self._observed[self.second]
        self.second = int(now)
        self._ends = self.second + 1.0
        self._observed.setdefault(self.second, 0)
        if self._started is None:
            self._started = now
        self._recent[self.second] = self.polls
        for second in [second for second in self._recent if second < self.second - _WINDOW]:
            del self._recent[second]

    def begin(self, now: float) -> int:
        """Count a job that is watched from now on; give its second."""
        if now >= self._ends:
            self._turn(now)
        self._observed[self.second] += 1
        return self.second

    def move(self, before: int) -> int:
        """Count a job as observed now that was last observed in the second `before`; give its new second."""
        if before != self.second:
            self.end(before)
            self._observed[self.second] += 1
        return self.second

    def end(self, before: int) -> None:
        """Count a job no longer."""
        left = self._observed[before] - 1
        if left or before == self.second:
            self._observed[before] = left
        else:
            del self._observed[before]

    def rate(self, now: float) -> float:
        """Give the polls per second of the last 10 s, or since the first one where that is shorter."""
        if self._started is None:
            return 0.0
        begins = now - _WINDOW
        before = [polls for second, polls in self._recent.items() if second >= begins]
        polls = self.polls - (before[0] if before else self.polls)
        return polls / min(_WINDOW, max(now - self._started, 1.0))

    def oldest(self, now: float) -> float:
        """Give the seconds since the oldest observation, to the second; 0 without any."""
        seconds = [second for second, jobs in self._observed.items() if jobs]
        return max(now - min(seconds) - 1, 0.0) if seconds else 0.0

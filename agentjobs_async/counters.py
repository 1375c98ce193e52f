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
        oldest_unobserved: Seconds since that watched job was seen (or its wait began) for which it is longest; 0
            without jobs. To the second.
    """

    jobs: int
    due: int
    in_flight: int
    polls: int
    errors: int
    rate: float
    oldest_unobserved: float


class Counters:
    """Counts polls, and the watched jobs by the second in which they were last observed."""

    __slots__ = ("_observed", "_recent", "_started", "errors", "polls")

    def __init__(self) -> None:
        self.polls = 0
        self.errors = 0
        self._observed: dict[int, int] = {}
        self._recent: dict[int, int] = {}
        self._started: int | None = None

    def count_poll(self, now: float) -> None:
        """Count an answered poll."""
        self.polls += 1
        second = int(now)
        recent = self._recent
        if second in recent:
            recent[second] += 1
            return
        recent[second] = 1
        if self._started is None:
            self._started = second
        if len(recent) > _WINDOW + 1:
            self._recent = {at: count for at, count in recent.items() if at > second - _WINDOW}

    def rate(self, now: float) -> float:
        """Give the polls per second of the last 10 s, or since the first poll where that is shorter."""
        if self._started is None:
            return 0.0
        second = int(now)
        recent = sum(count for at, count in self._recent.items() if at > second - _WINDOW)
        return recent / max(min(_WINDOW, now - self._started), 1.0)

    def observe(self, before: float | None, now: float | None) -> None:
        """Move a job from the moment it was observed `before` to `now`; `None` stands for not being watched."""
        if before is not None:
            second = int(before)
            left = self._observed[second] - 1
            if left:
                self._observed[second] = left
            else:
                del self._observed[second]
        if now is not None:
            second = int(now)
            self._observed[second] = self._observed.get(second, 0) + 1

    def oldest(self, now: float) -> float:
        """Give the seconds since the oldest observation, to the second; 0 without any."""
        return max(now - min(self._observed) - 1, 0.0) if self._observed else 0.0

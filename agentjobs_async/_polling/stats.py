"""Statistics of a tracker: polls are counted as they end, jobs when a snapshot is asked for."""

from collections import deque
from typing import Final

from attrs import frozen

_WINDOW_SECONDS: Final = 10  # of the rate


@frozen
class TrackerStats:
    """A snapshot of a tracker.

    Attributes:
        jobs: The number of jobs that are watched now.
        due: How many of them are due to be polled and wait for their turn.
        in_flight: The number of polls in flight.
        polls: The number of polls finished so far, failed ones included.
        errors: The number of polls that failed.
        rate: Finished polls per second over the last 10 s.
        oldest_unobserved: Seconds since the last observation of the job that was observed least recently (its wait's
            start counts as one); 0 without jobs.
    """

    jobs: int = 0
    due: int = 0
    in_flight: int = 0
    polls: int = 0
    errors: int = 0
    rate: float = 0.0
    oldest_unobserved: float = 0.0


class Counters:
    """Counts finished polls.

    Args:
        started: Loop time from which on it counts.

    Attributes:
        polls: The number of finished polls.
        errors: The number of polls that failed.
    """

    __slots__ = ("_recent", "_started", "errors", "polls")

    def __init__(self, started: float) -> None:
        self.polls = 0
        self.errors = 0
        self._started = started
        self._recent: deque[tuple[float, int]] = deque(maxlen=_WINDOW_SECONDS + 1)
        """Loop times, at least 1 s apart, and the number of polls that had finished before each."""

    def count(self, now: float, *, failed: bool) -> None:
        """Count a poll that finished at the loop time `now`."""
        if not self._recent or now >= self._recent[-1][0] + 1.0:
            self._recent.append((now, self.polls))
        self.polls += 1
        self.errors += failed

    def rate(self, now: float) -> float:
        """Return the polls per second over the last 10 s; since the start if that was later, but 1 s at least."""
        recent = tuple(self._recent)  # a copy, made at once: an exporter asks in a thread of its own
        before = [polls for begun, polls in recent if begun >= now - _WINDOW_SECONDS]
        polls = self.polls - (before[0] if before else self.polls)
        return polls / min(_WINDOW_SECONDS, max(now - self._started, 1.0))

"""Statistics of a tracker, counted at each poll, so that a snapshot never scans all jobs."""

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
            start counts as one); accurate to 1 s; 0 without jobs.
    """

    jobs: int = 0
    due: int = 0
    in_flight: int = 0
    polls: int = 0
    errors: int = 0
    rate: float = 0.0
    oldest_unobserved: float = 0.0


class Second:
    """One second of loop time, and the number of watched jobs that were last observed in it.

    Attributes:
        begins: Loop time at which it begins; a whole number.
        jobs: How many watched jobs were last observed in it.
    """

    __slots__ = ("begins", "jobs")

    def __init__(self, begins: int) -> None:
        self.begins = begins
        self.jobs = 0


class Counters:
    """Counts polls, and watched jobs by the second of loop time in which each was last observed.

    Only calls with a `now` advance the current second. A call costs the same however many jobs there are: each job
    keeps the `Second` in which it was last observed, and that one counts it. The first call in a second also drops the
    seconds without jobs.

    Attributes:
        polls: The number of finished polls.
        errors: The number of polls that failed.
    """

    __slots__ = ("_ends", "_recent", "_second", "_seconds", "_started", "errors", "polls")

    def __init__(self) -> None:
        self.polls = 0
        self.errors = 0
        self._ends = 0.0
        self._started: float | None = None
        self._second = Second(0)  # replaced by the first call, since `_ends` is 0.0
        self._seconds: list[Second] = []
        """In ascending order; the last one is the current one."""
        self._recent: dict[int, int] = {}

    def count_error(self, now: float) -> None:
        """Count a poll that failed at the loop time `now`."""
        self._advance(now)
        self.polls += 1
        self.errors += 1

    def _advance(self, now: float) -> None:
        """Begin the second of `now`, unless it has begun; drop seconds without jobs, and what is past the window."""
        if now < self._ends:
            return
        begins = int(now)
        self._ends = begins + 1.0
        self._second = Second(begins)
        self._seconds = [*(second for second in self._seconds if second.jobs), self._second]
        if self._started is None:
            self._started = now
        self._recent[begins] = self.polls
        for begun in [begun for begun in self._recent if begun < begins - _WINDOW_SECONDS]:
            del self._recent[begun]

    def begin(self, now: float) -> Second:
        """Count a job that is watched from `now` on; return its second."""
        self._advance(now)
        self._second.jobs += 1
        return self._second

    def count_seen(self, before: Second, now: float) -> Second:
        """Count a poll that has shown, at the loop time `now`, a job last observed in the second `before`.

        Returns:
            The job's new second.
        """
        self._advance(now)
        self.polls += 1
        before.jobs -= 1
        second = self._second
        second.jobs += 1
        return second

    def end(self, before: Second) -> None:
        """Stop counting a job that was last observed in the second `before`."""
        before.jobs -= 1

    # An exporter reads in a thread of its own: `tuple` copies at once, and `_seconds` is replaced as a whole.

    def rate(self, now: float) -> float:
        """Return the polls per second over the last 10 s; since the first poll if that was later."""
        if self._started is None:
            return 0.0
        begins = now - _WINDOW_SECONDS
        before = [polls for begun, polls in tuple(self._recent.items()) if begun >= begins]
        polls = self.polls - (before[0] if before else self.polls)
        return polls / min(_WINDOW_SECONDS, max(now - self._started, 1.0))

    def oldest(self, now: float) -> float:
        """Return the seconds since the oldest last observation, accurate to 1 s; 0 without jobs."""
        oldest = next((second.begins for second in self._seconds if second.jobs), None)
        return 0.0 if oldest is None else max(now - oldest - 1, 0.0)

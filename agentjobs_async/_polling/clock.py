"""When polls may start: a clock that can be stopped, and a limit of starts per second."""

from typing import Final, Literal

from agentjobs_async._polling.adaptive import AdaptiveRate
from agentjobs_async._validation import checked_seconds

__all__ = ["ROUNDING_SECONDS", "PollClock"]

ROUNDING_SECONDS: Final = 1e-6
"""How early a timer may fire: its time and the clock's are rounded differently."""

_CAUGHT_UP_SECONDS: Final = 0.01
"""How late a start may be for the next one to make up for it: timers are late, and would leave a quota unused.

A limit that the user has set is kept to more strictly: two starts are never closer than it allows.
"""


class PollClock:
    """The clock of the polls: the loop's time without the time for which this clock stood still.

    Attributes:
        adaptive: The limit that follows from the server's refusals, where the budget asks for it.
        free: Whether any poll may start at any time.
        resume_at: Loop time at which it goes on by itself; `None` while it runs, or stands until `resume` is called.
    """

    __slots__ = (
        "_budget_interval",
        "_interval",
        "_next_start",
        "_stopped_at",
        "_stopped_for",
        "adaptive",
        "free",
        "resume_at",
    )

    def __init__(self, per_second: float | Literal["auto"] | None) -> None:
        self.adaptive = AdaptiveRate() if per_second == "auto" else None
        self._budget_interval = 0.0 if per_second is None or per_second == "auto" else 1 / per_second
        self._interval = self._budget_interval
        self._next_start = 0.0
        self._stopped_for = 0.0
        self._stopped_at: float | None = None
        self.resume_at: float | None = None
        self.free = not self.limited

    @property
    def limited(self) -> bool:
        """Whether a limit of starts per second is in force."""
        return bool(self._interval) or (self.adaptive is not None and self.adaptive.in_force)

    def limit(self, per_second: float | None) -> None:
        """Start at most `per_second` polls per second beside the budget's own limit; `None` for that alone.

        Raises:
            InvalidInputError: `per_second` is not a finite number above 0.
        """
        if per_second is not None:
            checked_seconds("per_second", per_second, unit="polls per second")
        self._interval = max(self._budget_interval, 0.0 if per_second is None else 1 / per_second)
        self.free = not (self.stopped or self.limited)

    def refuse(self, began: float, now: float, until: float) -> None:
        """Record that the server refused a poll; arguments as of `AdaptiveRate.refuse`."""
        if self.adaptive is not None:
            self.adaptive.refuse(began, now, until)
            self.free = False

    @property
    def stopped(self) -> bool:
        """Whether it stands still."""
        return self._stopped_at is not None

    @property
    def unreachable(self) -> bool:
        """Whether it stands still until `resume` is called: the server can't be reached."""
        return self._stopped_at is not None and self.resume_at is None

    def time(self, now: float) -> float:
        """Return its time at the loop time `now`."""
        return (now if self._stopped_at is None else self._stopped_at) - self._stopped_for

    def due(self, when: float, now: float) -> float:
        """Return what its time will be at the loop time `when`, as far as that is known `now`."""
        if self._stopped_at is None:
            return when - self._stopped_for
        return self.time(now) + max(0.0, when - (now if self.resume_at is None else self.resume_at))

    def to_loop(self, time: float) -> float:
        """Return the loop time at which it shows `time`; only while it runs."""
        return time + self._stopped_for

    def stop(self, now: float, until: float | None) -> None:
        """Stand still until the loop time `until`, or, where it stands already, until the later of both times.

        With `None` it stands until `resume` is called, but a time that was given before or comes later counts.
        """
        if self._stopped_at is None:
            self._stopped_at = now
            self.free = False
            self.resume_at = until
        elif until is not None:
            self.resume_at = until if self.resume_at is None else max(self.resume_at, until)

    def resume(self, now: float) -> float:
        """Go on; return the seconds for which it stood still."""
        if self._stopped_at is None:
            return 0.0
        stopped_for = now - self._stopped_at
        self._stopped_for += stopped_for
        self._stopped_at = self.resume_at = None
        self.free = not self.limited
        return stopped_for

    def next_start(self, now: float) -> float:
        """Return the loop time from which the next poll may start: `now` or later."""
        return now if now >= self._next_start - ROUNDING_SECONDS else self._next_start

    def start(self, now: float) -> None:
        """Count one poll as started."""
        interval = self._interval
        earliest = now
        if self.adaptive is not None:
            interval = max(interval, 1 / self.adaptive.at(now))
            earliest -= _CAUGHT_UP_SECONDS
        self._next_start = max(earliest, self._next_start) + interval

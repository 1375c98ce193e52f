"""When polls may start: a clock that can be stopped, and a limit of starts per second."""

from math import inf
from typing import Final, Literal

from agentjobs_async._polling.adaptive import AdaptiveRate
from agentjobs_async._polling.poll_share import PollShare
from agentjobs_async._validation import checked_seconds

__all__ = ["ROUNDING_SECONDS", "PollClock"]

ROUNDING_SECONDS: Final = 1e-6
"""How early a timer may fire: its time and the clock's are rounded differently."""

_CAUGHT_UP_SECONDS: Final = 0.03
"""How late a start may be for the next one to make up for it: timers are late, and would leave a quota unused.

On a busy machine, 10 ms left a tenth of the quota unused, and with 50 ms twice as many polls were refused.

A limit that the user has set is kept to more strictly: two starts are never closer than it allows.
"""

_HELD_BACK_SECONDS: Final = 1.0
"""How often a process looks whether it may poll by now, while its share of the polls is 0 or not in force."""


class PollClock:
    """The clock of the polls: the loop's time without the time for which this clock stood still.

    Attributes:
        adaptive: The limit that follows from the server's refusals, where the budget asks for it.
        free: Whether any poll may start at any time.
        stopped_for: The seconds for which it stood still so far: its time is the loop's without them.
        resume_at: Loop time at which it continues by itself; `None` while it runs, or stands until `resume` is called.
    """

    __slots__ = (
        "_budget_interval",
        "_interval",
        "_last_turn",
        "_next_start",
        "_share",
        "_shares",
        "_stopped_at",
        "_turn",
        "adaptive",
        "free",
        "resume_at",
        "stopped_for",
    )

    def __init__(self, per_second: float | Literal["auto"] | None) -> None:
        self.adaptive = AdaptiveRate() if per_second == "auto" else None
        self._budget_interval = 0.0 if per_second is None or per_second == "auto" else 1 / per_second
        self._interval = self._budget_interval
        self._next_start = 0.0
        self._shares: dict[object, PollShare] = {}
        self._share: PollShare | None = None  # the least of them
        self._turn: float | None = None  # the one that the next poll awaits
        self._last_turn = -inf
        self.stopped_for = 0.0
        self._stopped_at: float | None = None
        self.resume_at: float | None = None
        self.free = not self.limited

    @property
    def limited(self) -> bool:
        """Whether a limit of starts per second is in force."""
        return bool(self._interval or self._shares) or (self.adaptive is not None and self.adaptive.in_force)

    def limit(self, per_second: float | None) -> None:
        """Start at most `per_second` polls per second beside the budget's own limit; `None` for that alone.

        Raises:
            InvalidInputError: `per_second` is not a finite number above 0.
        """
        if per_second is not None:
            checked_seconds("per_second", per_second, unit="polls per second")
        self._interval = max(self._budget_interval, 0.0 if per_second is None else 1 / per_second)
        self.free = not (self.stopped or self.limited)

    def share(self, sharer: object, share: PollShare | None) -> None:
        """Poll within `share` beside all other limits, of which the smallest applies; `None` lifts that of `sharer`."""
        if share is None:
            self._shares.pop(sharer, None)
        else:
            self._shares[sharer] = share
        self._share = min(self._shares.values(), key=lambda each: each.per_second, default=None)
        self._turn = None  # of another share
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
        return (now if self._stopped_at is None else self._stopped_at) - self.stopped_for

    def due(self, when: float, now: float) -> float:
        """Return what its time will be at the loop time `when`, as far as that is known `now`."""
        if self._stopped_at is None:
            return when - self.stopped_for
        return self.time(now) + max(0.0, when - (now if self.resume_at is None else self.resume_at))

    def to_loop(self, time: float) -> float:
        """Return the loop time at which it shows `time`; only while it runs."""
        return time + self.stopped_for

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
        """Continue; return the seconds for which it stood still."""
        if self._stopped_at is None:
            return 0.0
        stopped_for = now - self._stopped_at
        self.stopped_for += stopped_for
        self._stopped_at = self.resume_at = None
        self.free = not self.limited
        return stopped_for

    def next_start(self, now: float) -> float:
        """Return the loop time from which the next poll may start: `now` or later."""
        start = now if now >= self._next_start - ROUNDING_SECONDS else self._next_start
        return start if self._share is None else self._next_start_of(self._share, start, now)

    def _next_start_of(self, share: PollShare, start: float, now: float) -> float:
        if not share.may_poll:
            return now + _HELD_BACK_SECONDS
        if not self._takes_turns(share):
            return start
        # A timer may be late: a turn that a poll awaits counts until the next one. At any other time, a poll that comes
        # up between two turns waits, as the polls of all processes may have come up together.
        if self._turn is None or now >= self._turn + share.interval:
            self._turn = share.next_turn(max(start, self._last_turn + share.interval / 2) - ROUNDING_SECONDS)
        return now if now >= self._turn - ROUNDING_SECONDS else self._turn

    def _takes_turns(self, share: PollShare) -> bool:
        """Return whether the share decides when polls start: a process that polls less by itself needs no turns."""
        return share.has_turns and share.interval >= self._interval

    def start(self, now: float) -> None:
        """Count one poll as started."""
        interval = self._interval
        share = self._share
        if share is not None and self._takes_turns(share):
            self._last_turn = now if self._turn is None else self._turn
            self._turn = None
        elif share is not None:
            interval = max(interval, share.interval)
        earliest = now
        if self.adaptive is not None:
            interval = max(interval, 1 / self.adaptive.at(now))
            earliest -= _CAUGHT_UP_SECONDS
        self._next_start = max(earliest, self._next_start) + interval

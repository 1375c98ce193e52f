"""How long a server is left alone that refuses requests for now, and does not say for how long."""

from math import inf
from typing import Final

_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0  # so that the end of the refusals is noticed within a minute


class Backoff:
    """The pauses after refusals in a row: 1 s, doubled at each one up to 60 s. Times are loop times, in seconds."""

    __slots__ = ("_decided_at", "_seconds", "until")

    def __init__(self) -> None:
        self._decided_at = -inf
        self._seconds = 0.0
        self.until = -inf
        """When the last pause ends."""

    def refused(self, began: float, now: float) -> float:
        """Count a request that `began` at this time and was refused `now`; return when the next one may begin.

        Requests are refused together: one that began before the last pause was decided on does not lengthen it.
        """
        if began > self._decided_at:
            self._seconds = min(max(2 * self._seconds, _FIRST_SECONDS), _LONGEST_SECONDS)
            self._decided_at, self.until = now, now + self._seconds
        return self.until

    def answered(self) -> None:
        """Record a good answer: the next pause is the first of a row."""
        self._seconds = 0.0

"""How much of one kind of work one turn of the event loop does, where there may be 100,000 pieces of it."""

import asyncio
from typing import Final

__all__ = ["WAITS_PER_TURN", "Slice"]

# An end allocates about as many objects as are freed once the loop has run the callbacks of its future. Python counts
# the difference, and collects garbage when it reaches 700: with 2,000 ends in a turn, the collector took half the CPU.
WAITS_PER_TURN: Final = 250
_TURN_SECONDS: Final = 0.02  # hooks, for example, take longer than the ends themselves
_CHECK_EVERY_WAITS: Final = 64  # reading the clock for each wait would cost half as much as its end


class Slice:
    """The waits that may still be ended in this turn of the loop."""

    __slots__ = ("_checked_at", "_clock", "_ends_at", "_left")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = loop.time
        self._ends_at = loop.time() + _TURN_SECONDS
        self._left = WAITS_PER_TURN
        self._checked_at = WAITS_PER_TURN - _CHECK_EVERY_WAITS

    def has_room(self) -> bool:
        """Return whether this turn has room for another wait."""
        if self._left > self._checked_at:
            return True
        if self._left <= 0 or self._clock() >= self._ends_at:
            return False
        self._checked_at = self._left - _CHECK_EVERY_WAITS
        return True

    def take(self, waits: int = 1) -> None:
        """Count `waits` against this turn."""
        self._left -= waits

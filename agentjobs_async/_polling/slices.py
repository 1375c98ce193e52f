"""How much of one kind of work a turn of the event loop does, where there is very much of it."""

import asyncio
from typing import Final

__all__ = ["WAITS_PER_TURN", "Slice"]

WAITS_PER_TURN: Final = (
    2_000  # what the ends bring about in the next turn, such as tasks that go on, takes its time too
)
_TURN_SECONDS: Final = 0.02  # hooks, say, take longer than the ends themselves
_CHECK_EVERY: Final = 64  # reading the clock for each wait would cost as much as the half of its end


class Slice:
    """What one turn may still do."""

    __slots__ = ("_checked_at", "_clock", "_ends_at", "_left")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = loop.time
        self._ends_at = loop.time() + _TURN_SECONDS
        self._left = WAITS_PER_TURN
        self._checked_at = WAITS_PER_TURN - _CHECK_EVERY

    def has_room(self) -> bool:
        """Return whether there is room for more in this turn."""
        if self._left > self._checked_at:
            return True
        if self._left <= 0 or self._clock() >= self._ends_at:
            return False
        self._checked_at = self._left - _CHECK_EVERY
        return True

    def take(self, waits: int = 1) -> None:
        """Count some waits against this turn."""
        self._left -= waits

"""Work in very many pieces, of which one iteration of the event loop does a bounded number."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextvars import Context
from typing import Final

# The end of a wait allocates about as many objects as are freed once the loop has run the callbacks of its future.
# Python counts the difference, and collects garbage when it reaches 700: with 2,000 ends in an iteration, the
# collector took half the CPU.
PIECES_PER_ITERATION: Final = 250
_ITERATION_SECONDS: Final = 0.02  # hooks, for example, take longer than the ends themselves
_CHECK_EVERY_PIECES: Final = 64  # reading the clock for each piece would cost half as much as an end


def run_slice(loop: asyncio.AbstractEventLoop, pieces: Iterator[object]) -> bool:
    """Do as many pieces as one iteration of the loop has time for; return whether some may be left.

    The iterator does one piece each time it is asked for the next.
    """
    ends_at = loop.time() + _ITERATION_SECONDS
    for done, _ in enumerate(pieces, 1):
        if done == PIECES_PER_ITERATION or (done % _CHECK_EVERY_PIECES == 0 and loop.time() >= ends_at):
            return True
    return False


async def run_in_slices(pieces: Iterator[object]) -> None:
    """Do all pieces, a slice in each iteration of the loop; the rest within this one when this is cancelled."""
    loop = asyncio.get_running_loop()
    try:
        while run_slice(loop, pieces):  # noqa: ASYNC110 - what it waits for is the next iteration
            await asyncio.sleep(0)
    finally:
        for _ in pieces:
            pass


class SlicedWork:
    """Work that callbacks add. It is done in the order in which it came, a slice in each iteration of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left: deque[Iterator[object]] = deque()
        """What is not done, the work under way included."""

    def add(self, pieces: Iterator[object]) -> None:
        """Do `pieces` after all that was added before; the first slice within this call if nothing was.

        If a piece raises, the others are done nevertheless, unless the iterator ends by it, as a generator does.
        """
        self._left.append(pieces)
        if len(self._left) == 1:  # else the work is under way, or this call comes from within a piece
            self._go_on()

    def _go_on(self) -> None:
        try:
            run_slice(self._loop, self._pieces())
        finally:  # even if a piece raised
            if self._left:
                self._loop.call_soon(self._go_on, context=Context())

    def _pieces(self) -> Iterator[object]:
        while self._left:
            pieces = self._left[0]
            for piece in pieces:  # noqa: UP028 - `yield from` would close the work together with this iterator
                yield piece
            if self._left and self._left[0] is pieces:  # else a piece has finished or cleared all
                self._left.popleft()

    def finish(self) -> None:
        """Do all that is left within this call."""
        for _ in self._pieces():
            pass

    def clear(self) -> None:
        """Do no more: of work under way, this slice is the last."""
        self._left.clear()

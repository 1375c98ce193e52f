"""Planning many tasks, which takes a while: what is said meanwhile, and when it is stopped."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from agentjobs_async.batch import BatchItem, Journal, Refusals
from agentjobs_async.cli._output.columns import shortened
from agentjobs_async.cli._output.screen import Screen, Styled

__all__ = ["planned"]

_AT_ONCE: Final = 500  # one commit; half a second at the most until it can be stopped
_QUIET_SECONDS: Final = 5.0  # a log gets no more lines than these


async def planned(screen: Screen, journal: Journal, items: Sequence[BatchItem], *, keeps: bool) -> Refusals:
    """Plan all items and return the refused ones; show the progress, in a log every 5 s.

    Args:
        screen: The screen to write to.
        journal: The open journal.
        items: The items to plan.
        keeps: Whether the journal outlives a signal that stops the planning.

    Raises:
        CancelledError: A signal stopped it; the screen shows how many items are planned.
    """
    progress = _Progress(screen, len(items))
    refused: Refusals = []
    try:
        async with screen.live_view(progress.lines):
            for at in range(0, len(items), _AT_ONCE):
                refused += await journal.add(items[at : at + _AT_ONCE])
                progress.came_to(min(at + _AT_ONCE, len(items)))
    except asyncio.CancelledError:
        planned_so_far = f"; at least {progress.words}. The same command again plans the rest and continues"
        screen.notice(f"Nothing was sent{planned_so_far * keeps}.")
        raise
    return refused


class _Progress:
    def __init__(self, screen: Screen, total: int) -> None:
        self._screen = screen
        self._total = total
        self._done = 0
        self._clock = asyncio.get_running_loop().time
        self._last_line_at = self._clock()

    @property
    def words(self) -> str:
        return f"{self._done:,} of {self._total:,} are planned"

    def came_to(self, done: int) -> None:
        self._done = done
        if not self._screen.shows_live_view and self._clock() - self._last_line_at >= _QUIET_SECONDS:
            self._last_line_at = self._clock()
            self._screen.notice(f"{self.words} …")

    def lines(self, width: int, height: int) -> Iterator[tuple[Styled, ...]]:
        del height
        yield (shortened(self.words, width),)

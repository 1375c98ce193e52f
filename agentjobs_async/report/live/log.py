"""What has changed, line by line: each page reads on from where it stands, one that slept too."""

import asyncio
from secrets import token_hex
from typing import Final

__all__ = ["Log"]

_MOST_DIGITS: Final = 19  # of a position in an id: Python would read one of any length


class Log:
    """Lines by their positions, which count from the start of this log.

    Attributes:
        end: The position behind the last line.
        is_closed: Whether no line will follow.
    """

    def __init__(self) -> None:
        self.is_closed: bool = False
        self._name = token_hex(4)  # a page that stands in the log of an earlier process starts anew
        self._first = 0
        self._lines: list[str] = []
        self._news = asyncio.Event()

    @property
    def end(self) -> int:
        """The position behind the last line."""
        return self._first + len(self._lines)

    def add(self, line: str) -> None:
        """Add a line, and wake the pages that wait for one."""
        self._lines.append(line)
        self.wake()

    def wake(self) -> None:
        """Wake all that wait in `news`."""
        # Those that wait hold the old event: each is woken, and none misses a line that comes before it runs.
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End the log, and wake the pages that wait for a line."""
        self.is_closed = True
        self.wake()

    def forget(self, before: int) -> None:
        """Drop the lines before a position: a page that stands there starts anew."""
        dropped = max(before - self._first, 0)
        del self._lines[:dropped]
        self._first += dropped

    def mark(self, position: int) -> str:
        """Return a position as the id of an event."""
        return f"{self._name}.{position}"

    def position(self, mark: str | None) -> int | None:
        """Return the position of an id; `None` if what follows it is not known any more, or it is of another log."""
        name, _, number = (mark or "").partition(".")
        if name != self._name or not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
            return None
        return int(number) if self.has(int(number)) else None

    def has(self, position: int) -> bool:
        """Return whether all that follows a position is known."""
        return self._first <= position <= self.end

    def line(self, position: int) -> str:
        """Return the line at a position that is known, before the end."""
        return self._lines[position - self._first]

    def news(self) -> asyncio.Event:
        """Return an event that is set at the next line, or at the end."""
        return self._news

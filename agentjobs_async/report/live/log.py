"""What has changed since the document of all rows was made, for pages that come late or slept."""

from secrets import token_hex
from typing import Final

from attrs import define, field

from agentjobs_async.report.document import Growing

__all__ = ["Log"]

_MOST_DIGITS: Final = 19  # of a position in an id: Python would read one of any length


@define(eq=False)
class Log(Growing):
    """Lines by their positions, which count from the start of this log: a page reads on from where it stands.

    Attributes:
        is_closed: Whether no line will follow.
    """

    is_closed: bool = field(default=False, init=False)
    _name: str = field(factory=lambda: token_hex(4), init=False)  # the log of an earlier process has another one
    _first: int = field(default=0, init=False)
    _lines: list[str] = field(factory=list, init=False)

    @property
    def end(self) -> int:
        """The position behind the last line."""
        return self._first + len(self._lines)

    def add(self, line: str) -> None:
        """Add a line, and wake the pages that wait for one."""
        self._lines.append(line)
        self.wake()

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

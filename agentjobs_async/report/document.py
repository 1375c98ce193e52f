"""What a page reads on as it grows: the compressed document of all rows, and the log of what has changed since."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from secrets import token_hex
from typing import Any, Final

from attrs import define, field

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.columns import block_line, head_line
from agentjobs_async.report.source import Source

__all__ = ["Document", "Log"]

_LEVEL: Final = 5  # the highest one takes twice as long, and saves half a percent
_GZIP: Final = 31  # zlib's name for a gzip header around the largest window
_MEMORY: Final = 6  # with more, one code would serve several columns, which have little in common
_BLOCK_ROWS: Final = 2000  # a column of fewer is packed less well
_BLOCK_CHARACTERS: Final = 4_000_000  # of prompts: a block of longer ones has fewer rows
_MOST_DIGITS: Final = 19  # of a position in an id: Python would read one of any length


@define(eq=False)
class _Growing:
    """What is read on while it grows."""

    _news: asyncio.Event = field(factory=asyncio.Event, init=False)

    def news(self) -> asyncio.Event:
        """Return an event that is set when there is more: get it before you look, so that you miss nothing."""
        return self._news

    def wake(self) -> None:
        """Wake all that wait for more."""
        # Those that wait have the old event: each is woken, and none misses what comes before it runs.
        self._news.set()
        self._news = asyncio.Event()


@define(eq=False)
class Document(_Growing):
    """Lines of JSON, gzipped: the head, and the rows in blocks.

    Attributes:
        rows: The number of rows in it.
    """

    rows: int = field(default=0, init=False)
    _packer: Any = field(factory=lambda: zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP, _MEMORY), init=False)
    _pieces: list[bytes] = field(factory=list, init=False)
    _is_ended: bool = field(default=False, init=False)

    async def read(self, source: Source, **more: str) -> AsyncIterator[list[JournalRow]]:
        """Add the head, with `more` in it, and the rows, some hundred of which it yields at a time.

        Each item is there once, as its newest try.

        Raises:
            JournalError: The journal can't be read.
        """
        self.add_line(head_line(source, **more))
        rows: list[JournalRow] = []
        async for page in source.journal.rows().pages():
            yield page
            rows += page
            if not self.rows or _fill_a_block(rows):  # the first ones at once: a live page waits for them
                await self.add(rows, prompts=source.prompts)
                rows = []
        if rows:
            await self.add(rows, prompts=source.prompts)

    async def add(self, rows: Sequence[JournalRow], *, prompts: bool = True) -> None:
        """Add a block of rows, on a thread: the loop may be that of a batch, whose polls would stand still."""
        self._grow(await asyncio.to_thread(lambda: self._packed(block_line(rows, prompts=prompts))))
        self.rows += len(rows)

    def add_line(self, line: str) -> None:
        """Add a line."""
        self._grow(self._packed(line))

    def end(self) -> None:
        """End the document where it is."""
        self._is_ended = True
        self._grow(self._packer.flush())

    def whole(self) -> bytes:
        """Return the document as far as it is made."""
        return b"".join(self._pieces)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the document as far as it is made, then each piece that is added, to its end."""
        sent = 0
        while True:
            news, is_ended = self.news(), self._is_ended  # before the pieces: none is added unseen
            while sent < len(self._pieces):
                sent += 1
                yield self._pieces[sent - 1]
            if is_ended:
                return
            await news.wait()

    def _packed(self, line: str) -> bytes:
        # Flushed, so that a page can read the line at once.
        piece: bytes = self._packer.compress(f"{line}\n".encode()) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        return piece

    def _grow(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.wake()


def _fill_a_block(rows: Sequence[JournalRow]) -> bool:
    return len(rows) >= _BLOCK_ROWS or sum(len(row.prompt) for row in rows) >= _BLOCK_CHARACTERS


@define(eq=False)
class Log(_Growing):
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

    def event_id(self, position: int) -> str:
        """Return a position as the id of an event."""
        return f"{self._name}.{position}"

    def position(self, event_id: str | None) -> int | None:
        """Return the position of an id; `None` if what follows it is not known any more, or it is of another log."""
        name, _, number = (event_id or "").partition(".")
        if name != self._name or not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
            return None
        return int(number) if self.has(int(number)) else None

    def has(self, position: int) -> bool:
        """Return whether all that follows a position is known."""
        return self._first <= position <= self.end

    def line(self, position: int) -> str:
        """Return the line at a position that is known, before the end."""
        return self._lines[position - self._first]

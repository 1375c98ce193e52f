"""What a page reads on as it grows: the compressed document of all rows, and the log of what has changed since."""

import asyncio
import json
import math
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from secrets import token_hex
from typing import Any, Final

from attrs import Factory, define, field

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.columns import MOST_TEXT, block_line, head_line, most_prompt
from agentjobs_async.report.source import Source

__all__ = ["SMALLEST", "Document", "Log"]

SMALLEST: Final = 9
"""The level of a document that is written once, and mailed."""
_QUICK: Final = 5  # where a page waits for it: the smallest would take three times as long
_GZIP: Final = 31  # zlib's name for a gzip header around the largest window
_MEMORY: Final = 9
_MOST_DIGITS: Final = 19  # of a position in an id: Python would read one of any length
_BLOCK_ROWS: Final = 8192  # rows have most in common with their neighbours; 16 MB of JSON with the longest prompts


@define(eq=False)
class _Growing:
    """What is read on while it grows."""

    _news: asyncio.Event = field(factory=asyncio.Event, init=False)

    def news(self) -> asyncio.Event:
        """Return an event that is set when there is more: take it before you look, so that you miss nothing."""
        return self._news

    def wake(self) -> None:
        """Wake all that wait for more."""
        # Those that wait hold the old event: each is woken, and none misses what comes before it runs.
        self._news.set()
        self._news = asyncio.Event()


def _packer(document: "Document") -> Any:
    return zlib.compressobj(document.level, zlib.DEFLATED, _GZIP, _MEMORY)


@define(eq=False)
class Document(_Growing):
    """Lines of JSON, gzipped: the head, and the rows in blocks.

    Attributes:
        level: That of the compression.
        most_bytes: The most bytes that it may have: prompts are cut, to one character at least, to keep it.
        rows: The number of rows in it.
    """

    level: int = _QUICK
    most_bytes: float = math.inf
    rows: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _rows_left: int = field(default=0, init=False)
    _most_prompt: int = field(default=MOST_TEXT, init=False)
    _is_cut: bool = field(default=False, init=False)
    _packer: Any = field(default=Factory(_packer, takes_self=True), init=False)
    _pieces: list[bytes] = field(factory=list, init=False)
    _is_ended: bool = field(default=False, init=False)

    async def read(self, source: Source, **more: str) -> AsyncIterator[list[JournalRow]]:
        """Add the head, with `more` in it, and the rows, some hundred of which it yields at a time.

        Each item is there once, as its newest try.

        Raises:
            JournalError: The journal can't be read.
        """
        if math.isfinite(self.most_bytes):  # else no prompt is cut for the size, and no block has a share of it
            self._rows_left = sum((await source.journal.counts()).values())
        self.add_line(head_line(source, **more))
        rows: list[JournalRow] = []
        async for page in source.journal.rows().pages():
            yield page
            rows += page
            if len(rows) >= (_BLOCK_ROWS if self.rows else 1):  # the first ones at once: a live page waits for them
                await self.add(rows, prompts=source.prompts)
                rows = []
        if rows:
            await self.add(rows, prompts=source.prompts)
        if self._is_cut:
            self.add_line(json.dumps({"cut": True}))

    async def add(self, rows: Sequence[JournalRow], *, prompts: bool = True) -> None:
        """Add a block of rows, on a thread: the loop may be that of a batch, whose polls would stand still."""
        self._grow(await asyncio.to_thread(self._fitting, rows, prompts=prompts))
        self.rows += len(rows)

    def add_line(self, line: str) -> None:
        """Add a line."""
        self._grow(_packed(self._packer, line))

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

    def _fitting(self, rows: Sequence[JournalRow], *, prompts: bool) -> bytes:
        """Pack a block, with its prompts cut so far that it takes no more than its share of what is left."""
        # The first ones, which are read most, may take the share of a whole block.
        share = min(max(len(rows), _BLOCK_ROWS) / max(self._rows_left, 1), 1)
        most_bytes = (self.most_bytes - self._bytes) * share
        self._rows_left -= len(rows)
        longest = min(max((len(row.prompt) for row in rows), default=0), MOST_TEXT)
        most = min(self._most_prompt, max(longest, 1))
        while True:
            packer = self._packer.copy()
            piece = _packed(packer, block_line(rows, prompts=prompts, most=most))
            if len(piece) <= most_bytes or most == 1 or not prompts:
                self._is_cut |= prompts and any(len(row.prompt) > most_prompt(row, most) for row in rows)
                more = most * 4 // 3 + 1 if len(piece) < most_bytes * 0.95 else most  # for the rows that follow
                self._packer, self._most_prompt = packer, more if most < longest else MOST_TEXT
                return piece
            most = max(most * (3 if len(piece) < most_bytes * 1.1 else 2) // 4, 1)

    def _grow(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)
        self.wake()


def _packed(packer: Any, line: str) -> bytes:
    # Flushed, so that a page can read the line at once.
    piece: bytes = packer.compress(f"{line}\n".encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
    return piece


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

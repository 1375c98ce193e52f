"""All rows of a journal as one compressed document, which can be sent while it is being made."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Final

from attrs import Factory, define, field

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.columns import block_line, head_line
from agentjobs_async.report.source import Source

__all__ = ["SMALLEST", "Document", "Growing"]

SMALLEST: Final = 9
"""The level of a document that is written once, and mailed."""
_QUICK: Final = 5  # where a page waits for it: the smallest would take three times as long
_GZIP: Final = 31  # zlib's name for a gzip header around the largest window
_MEMORY: Final = 9
_BLOCK_ROWS: Final = 8192  # rows have most in common with their neighbours; 16 MB of JSON with the longest prompts


@define(eq=False)
class Growing:
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
class Document(Growing):
    """Lines of JSON, gzipped: the head, and the rows in blocks.

    Attributes:
        level: That of the compression.
        rows: The number of rows in it.
    """

    level: int = _QUICK
    rows: int = field(default=0, init=False)
    _packer: Any = field(default=Factory(_packer, takes_self=True), init=False)
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
            if len(rows) >= _BLOCK_ROWS:
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

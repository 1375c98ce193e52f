"""All rows as one compressed document, made once for all pages that ask for it, and sent while it is being made."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from attrs import define, field

from agentjobs_async.batch import JournalRow
from agentjobs_async.report.columns import block_line

__all__ = ["Document"]

_GZIP: Final = 31  # zlib's name for a gzip header around the largest window
_LEVEL: Final = 5  # a page waits for it: the smallest would take three times as long


@define(eq=False)
class Document:
    """Lines of JSON, gzipped: the head, the rows in blocks, and from which position of the log on a page follows.

    Attributes:
        position: The position of the log; what was logged before it is in the document.
    """

    position: int
    _packer: Any = field(factory=lambda: zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP))
    _pieces: list[bytes] = field(factory=list)
    _is_ended: bool = False
    _news: asyncio.Event = field(factory=asyncio.Event)

    async def add(self, rows: Sequence[JournalRow], *, prompts: bool = True) -> None:
        """Add a block of rows, on a thread: the loop may be that of a batch."""
        piece = await asyncio.to_thread(lambda: self._packed(block_line(rows, prompts=prompts)))
        self._grow(piece)

    def add_line(self, line: str) -> None:
        """Add a line."""
        self._grow(self._packed(line))

    def end(self) -> None:
        """End the document where it is."""
        self._is_ended = True
        self._grow(self._packer.flush())

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the document as far as it is made, then each piece that is added, to its end."""
        sent = 0
        while True:
            news, is_ended = self._news, self._is_ended  # before the pieces: none is added unseen
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
        # Those that wait hold the old event: each is woken, and none misses what comes before it runs.
        self._news.set()
        self._news = asyncio.Event()

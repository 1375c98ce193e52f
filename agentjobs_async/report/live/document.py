"""All rows as one compressed document, made once for all pages that ask for it."""

import asyncio
import json
import zlib
from collections.abc import Sequence
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
        body: The document, once it is finished.
    """

    position: int
    body: bytes = b""
    _packer: Any = field(factory=lambda: zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP))
    _packed: bytearray = field(factory=bytearray)

    async def add(self, rows: Sequence[JournalRow]) -> None:
        """Add a block of rows, on a thread: the loop may be that of a batch."""
        await asyncio.to_thread(lambda: self.add_line(block_line(rows)))

    def add_line(self, line: str) -> None:
        """Add a line."""
        self._packed += self._packer.compress(line.encode())

    def finish(self, mark: str) -> None:
        """Add where a page reads on, as the id of an event, and end the document."""
        self.add_line(json.dumps({"position": mark}) + "\n")
        self.body = bytes(self._packed + self._packer.flush())
        self._packed.clear()

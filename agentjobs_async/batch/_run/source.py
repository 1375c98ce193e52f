"""The items of a run as they come: of any iterable, or of an async one."""

import asyncio
import inspect
from collections.abc import AsyncIterable, Iterable, Iterator
from itertools import islice
from typing import Final

from agentjobs_async.batch.items import BatchItem

_LEAVING_SECONDS: Final = 10.0  # for what a source does when it is cancelled

Items = Iterable[BatchItem] | AsyncIterable[BatchItem]


def source_of(items: Items) -> "PlainSource | AsyncSource":
    """Return what reads the items; of an async iterable, a task does so from now on."""
    return PlainSource(iter(items)) if isinstance(items, Iterable) else AsyncSource(items)


class PlainSource:
    """Reads items from an iterator."""

    def __init__(self, iterator: Iterator[BatchItem]) -> None:
        self._iterator = iterator

    async def read(self, most: int) -> tuple[list[BatchItem], BaseException | None]:
        """Return up to `most` items, none at the end, and the iterator's own error, which comes after them."""
        found: list[BatchItem] = []
        try:
            found.extend(islice(self._iterator, most))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - it comes out of the iteration, after the items
            return found, error
        return found, None

    async def aclose(self) -> None:
        """Do nothing: the iterator belongs to the caller."""


class AsyncSource:
    """Reads what an async iterable has at hand, by means of a task of its own: pages of one item would be slow."""

    def __init__(self, items: AsyncIterable[BatchItem]) -> None:
        self._found: list[BatchItem] = []
        self._most = 0
        self._closed = False
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._collect(items))

    async def read(self, most: int) -> tuple[list[BatchItem], BaseException | None]:
        """Wait for an item; return up to `most` that have come, none at the end, and the iterable's own error."""
        self._most = most
        self._wanted.set()
        await self._arrived.wait()
        found, self._found = self._found[:most], self._found[most:]
        if self._found or not self._task.done():
            if not self._found:
                self._arrived.clear()
            return found, None
        return found, asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    async def aclose(self) -> None:
        """Cancel the task that reads; leave it behind after 10 s, if it has swallowed its cancellation."""
        self._closed = True
        self._task.cancel()
        await asyncio.wait([self._task], timeout=_LEAVING_SECONDS)

    async def _collect(self, items: AsyncIterable[BatchItem]) -> None:
        try:
            await self._wanted.wait()
            async for item in items:
                if self._closed:
                    return  # the source has swallowed its cancellation, and goes on
                self._found.append(item)
                self._arrived.set()
                while len(self._found) >= self._most:
                    self._wanted.clear()
                    await self._wanted.wait()
        finally:
            if inspect.isasyncgen(items):
                await items.aclose()
            self._arrived.set()

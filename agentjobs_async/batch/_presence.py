"""The sign of life of one owner among many, and the rows of those who give none any more."""

import asyncio
import logging
from typing import Final

import agentjobs_async.batch._fleet as fleet
from agentjobs_async import JournalError
from agentjobs_async.batch._database import Database
from agentjobs_async.batch.entries import Entries

__all__ = ["Presence"]

_BEATS: Final = 4

_logger: Final = logging.getLogger("agentjobs_async.batch")


class Presence:
    """Tells the database that an owner is alive, several times in `patience` seconds, and makes orphans unknown.

    Attributes:
        orphans: Keys of rows that became unknown, until somebody takes them.
    """

    def __init__(self, database: Database, entries: Entries, patience: float) -> None:
        self.orphans: list[str] = []
        self._database = database
        self._entries = entries
        self._patience = patience
        self._beating: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Be there, durably, and from now on."""
        await self._beat()
        self._beating = asyncio.get_running_loop().create_task(self._beat_on())

    async def end(self) -> None:
        """Leave: what this owner is still sending is anybody's to make unknown."""
        if self._beating is None:
            return
        beating, self._beating = self._beating, None
        beating.cancel()
        await asyncio.wait([beating])
        try:
            await self._database.write(fleet.parted(self._entries.owner))
        except JournalError as error:  # its silence tells the same, later
            _logger.warning("%s", error)

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self._patience / _BEATS)
            try:
                await self._beat()
            except JournalError as error:  # the writes of the rows tell whoever waits for them
                _logger.warning("%s", error)

    async def _beat(self) -> None:
        now = self._entries.now()
        await self._database.write(fleet.alive(self._entries.owner, now))
        found = await self._entries.orphaned(self._patience)
        if found:
            _logger.warning("%d creates became unknown: their owners are gone", len(found))
        self.orphans += found
        await self._database.write(fleet.forgotten(now, self._patience))

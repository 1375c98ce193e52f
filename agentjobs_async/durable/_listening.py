"""Notifications of PostgreSQL about a journal's jobs: each begins a look at the rows, sooner than the next sweep."""

import asyncio
import logging
from typing import Final
from uuid import uuid4

from agentjobs_async import JournalError
from agentjobs_async._loop.delays import doubling
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.durable._noticing import Noticing
from agentjobs_async.errors import log_text

_FIRST_RETRY_SECONDS: Final = 1.0  # after a connection that broke
_LONGEST_RETRY_SECONDS: Final = 60.0
_PROOF_SECONDS: Final = 5.0  # within which a word of one's own has to come back
_LATE_SECONDS: Final = 1.0  # by which a timer is late whose loop stood still

_logger: Final = logging.getLogger("agentjobs_async.durable")


class Listening:
    """Listens to a journal on PostgreSQL, and has its rows looked at as soon as somebody notifies.

    The rows themselves say what is to be done: a notification that gets lost delays that until the next sweep.

    Args:
        opened: The open journal.
        rows: Those of its rows that are durable jobs.
        noticing: Looks for rows that need something.
    """

    def __init__(self, opened: Opened, rows: DurableRows, noticing: Noticing) -> None:
        self._opened = opened
        self._rows = rows
        self._noticing = noticing
        self._delays = doubling(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        self._has_warned = False
        self._proof: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Listen until cancelled; over a new connection, after 1 s doubling to 60 s, where one broke or failed."""
        while True:
            try:
                await self._listen()
            except JournalError as error:
                _logger.info("no notifications for the time being: %s", log_text(error))
            await asyncio.sleep(next(self._delays))

    async def _listen(self) -> None:
        """Listen until the connection breaks.

        Raises:
            JournalError: It broke, or none was made.
        """
        proof = uuid4().hex
        async with self._opened.listening(await self._rows.channel()) as words:
            self._noticing.look_soon()  # for what was said before
            # Sent as every other word is, and so through the same pooler.
            await self._rows.say(proof)
            self._expect_proof(_PROOF_SECONDS)
            try:
                async for word in words:
                    if word == proof:
                        self._expect_none()
                        self._delays = doubling(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
                    elif not word:  # else it is the proof of another process
                        self._noticing.look_soon()
            finally:
                self._expect_none()

    def _expect_proof(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._proof = loop.call_later(seconds, self._warn, loop.time() + seconds)

    def _expect_none(self) -> None:
        if self._proof is not None:
            self._proof.cancel()

    def _warn(self, due: float) -> None:
        """Warn once that one's own word did not come back by the loop time `due`."""
        if asyncio.get_running_loop().time() > due + _LATE_SECONDS:
            self._expect_proof(_LATE_SECONDS)  # the loop stood still: what has come meanwhile is read first
        elif not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "notifications of PostgreSQL do not reach this process (is there a pooler in transaction mode?): what"
                " `notify` says in other processes is noticed within %.1f s. Open the journal by the server's own"
                " address, or use session pooling",
                self._noticing.seconds,
            )

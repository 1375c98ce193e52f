"""Calls of `notify`, such as those of webhooks: each is passed on to the process that follows the job."""

import asyncio
import logging
from copy import copy
from typing import Final

from agentjobs_async import JournalError, SessionClosedError
from agentjobs_async._loop.tasks import until_done
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.durable._following import Following
from agentjobs_async.durable._noticing import Noticing
from agentjobs_async.errors import log_text

_AT_ONCE: Final = 20  # marks: what creates have to write does not wait for very many of them

_logger: Final = logging.getLogger("agentjobs_async.durable")


class Notifying:
    """Has jobs polled soon: those that are followed here at once, others by a mark in their rows.

    Args:
        rows: The journal's rows that are durable jobs.
        following: Follows the jobs of this process.
        noticing: Looks for the marks that are meant for this process.
    """

    def __init__(self, rows: DurableRows, following: Following, noticing: Noticing) -> None:
        self._rows = rows
        self._following = following
        self._noticing = noticing
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._asked: dict[str, list[asyncio.Future[bool]]] = {}
        """Who waits, by the keys whose marks have not begun."""
        self._under_way: dict[asyncio.Task[None], list[asyncio.Future[bool]]] = {}
        self._has_failed = False

    def notify(self, key: str) -> asyncio.Future[bool]:
        """Begin to have the job of a key polled soon; return a future of whether it is followed. Nobody must await it.

        Raises:
            SessionClosedError: The session is closed or draining, or belongs to another event loop.
        """
        known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._following.notify(key):
            known.set_result(True)
            return known
        if (asked := self._asked.get(key)) is not None:  # one mark serves all who ask before it begins
            asked.append(known)
            return known
        asked = self._asked[key] = [known]
        task = asyncio.get_running_loop().create_task(self._pass_on(key, asked))
        self._under_way[task] = asked
        task.add_done_callback(self._under_way.pop)
        return known

    async def cancel(self) -> None:
        """Cancel what is under way, and wait for its end: a mark that is being written may be written all the same."""
        for task, asked in self._under_way.items():
            task.cancel()
            _fail(asked, SessionClosedError("the durable jobs were closed; the next start polls the job at once"))
        await until_done(set(self._under_way))

    async def _pass_on(self, key: str, asked: list[asyncio.Future[bool]]) -> None:
        """Mark the row of a key, and set the results of futures, which their holders may have cancelled."""
        try:
            async with self._turns:
                del self._asked[key]  # no await after it and before the mark: a later call gets another one
                follower = await self._rows.notify(key)
        except JournalError as error:
            if not self._has_failed:
                _logger.warning("%r is polled when its poll is due, not sooner: %s", key, log_text(error))
            self._has_failed = True
            _fail(asked, error)
            return
        self._has_failed = False
        if follower == self._rows.follower:  # on PostgreSQL it is notified as well
            self._noticing.look_soon()
        for known in asked:
            if not known.done():
                known.set_result(follower is not None)


def _fail(asked: list[asyncio.Future[bool]], error: Exception) -> None:
    """Set the exception of futures that nobody may await."""
    for known in asked:
        if not known.done():
            known.set_exception(copy(error))  # whoever awaits one adds to its traceback
            known.exception()  # retrieved

"""Handing out work in chunks, and finding what was abandoned: chunks that no worker runs, items in none."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Any, Final

from procrastinate import App
from procrastinate.jobs import Job

from agentjobs_async.batch import Journal
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._store.owning import doubt_dead, free_dead, unowned
from agentjobs_async.batch._store.store import NOBODY
from agentjobs_async.engines._connector import error_text

TASK: Final = "agentjobs.run"
QUEUE: Final = "agentjobs"
_SWEEPS: Final = 4  # in `stalled_after` seconds
_MOST_ITEMS: Final = 10_000  # items that one sweep looks up among the chunks
_CHUNK: Final = 100  # keys of a chunk that a sweep makes
_TASKS_AT_ONCE: Final = 100  # in one statement
_QUEUED_KEYS: Final = """
SELECT DISTINCT item.key AS key
  FROM procrastinate_jobs AS job, jsonb_array_elements_text(job.args -> 'keys') AS item (key)
 WHERE job.task_name = %(task)s AND job.status IN ('todo', 'doing') AND item.key = ANY(%(keys)s)
"""

_logger: Final = logging.getLogger("agentjobs_async.engines")


async def hand_out(app: App, keys: Sequence[str], chunk: int) -> None:
    """Add tasks of up to `chunk` keys each to the queue."""
    tasks: list[Any] = [{"keys": page} for page in pages_of(keys, chunk)]
    for page in pages_of(tasks, _TASKS_AT_ONCE):
        await app.configure_task(TASK, queue=QUEUE).batch_defer_async(*page)


class Sweep:
    """Looks for abandoned work four times in `stalled_after` seconds, and hands it out again.

    Handing out work twice does no harm, since the journal lets one owner send an item: doubtful cases are handed out.

    Attributes:
        running: The chunks that this worker runs, by their numbers in the queue.
        worker_ids: The ids of this worker in the queue, which gives it a new one after each outage.
    """

    def __init__(self, app: App, journal: Journal, stalled_after: float) -> None:
        self.running: set[int] = set()
        self.worker_ids: set[int] = set()
        self._app = app
        self._journal = journal
        self._stalled_after = stalled_after
        self._idle: frozenset[int | None] = frozenset()
        self._after = 0

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            for part in (self._retry_of_dead_workers, self._retry_of_this_worker, self._defer_unowned):
                try:
                    await part()
                except Exception as error:  # noqa: BLE001 - a sweep that ended would not be noticed
                    _logger.info("the sweep failed, and is repeated: %s", error_text(error))
            await asyncio.sleep(self._stalled_after / _SWEEPS)

    async def _retry_of_dead_workers(self) -> None:
        """Hand out the chunks of workers whose heartbeats have stopped, or that have left."""
        jobs = self._app.job_manager
        for job in await jobs.get_stalled_jobs(task_name=TASK, seconds_since_heartbeat=self._stalled_after):
            await jobs.retry_job(job)

    async def _retry_of_this_worker(self) -> None:
        """Hand out the chunks that are assigned to this worker and that it does not run: their end was not recorded.

        Two sweeps in a row must find a chunk so: one that was just fetched does not run yet, and the end of one that
        has just ended is not recorded yet.
        """
        jobs = self._app.job_manager
        assigned: dict[int | None, Job] = {}
        for worker_id in tuple(self.worker_ids):
            found = list(await jobs.list_jobs_async(task=TASK, status="doing", worker_id=worker_id))
            assigned |= {job.id: job for job in found if job.id not in self.running}
            if not found:
                self.worker_ids.discard(worker_id)  # the next chunk that it runs brings it back
        idle, self._idle = self._idle, frozenset(assigned)
        for number in self._idle & idle:
            _logger.warning("a chunk that was assigned to this worker and not run is handed out again")
            await jobs.retry_job(assigned[number])

    async def _defer_unowned(self) -> None:
        """Hand out items that no living owner waits for and that are in no open chunk.

        Such an item was resolved or planned again, or came with a journal that was moved here. Or its owner stalled, it
        became unknown, its chunk ended without it, and the response to its create arrived after all. What a dead owner
        was sending becomes unknown first, and is such an item once a person has settled it.
        """
        store = self._journal.store
        await free_dead(store)
        await doubt_dead(store, NOBODY, followed=False)
        found = await unowned(store, self._after, _MOST_ITEMS)
        self._after = found[-1][0] if len(found) == _MOST_ITEMS else 0
        keys = [key for _, key in found]
        queued = await self._queued(keys) if keys else frozenset[str]()
        if left := [key for key in keys if key not in queued]:
            _logger.info("%d items that no worker waited for are handed out", len(left))
            await hand_out(self._app, left, _CHUNK)

    async def _queued(self, keys: Collection[str]) -> Collection[str]:
        """Return those of the keys that are in a chunk which is queued or assigned."""
        rows = await self._app.connector.execute_query_all_async(_QUEUED_KEYS, task=TASK, keys=list(keys))
        return {row["key"] for row in rows}

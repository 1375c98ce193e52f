"""Finding work that nobody does: chunks whose worker died or does not run them, and items that no chunk carries."""

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

from procrastinate import App
from procrastinate.jobs import Job

from agentjobs_async.batch import Journal
from agentjobs_async.batch.journal import entries_of
from agentjobs_async.engines._connector import error_text

__all__ = ["Sweep"]

_BEATS: Final = 4
_MOST_ITEMS: Final = 10_000  # that one sweep looks for among the chunks
_CHUNK: Final = 100
_CARRIED: Final = """
SELECT DISTINCT item.key AS key
  FROM procrastinate_jobs AS job, jsonb_array_elements_text(job.args -> 'keys') AS item (key)
 WHERE job.task_name = %(task)s AND job.status IN ('todo', 'doing') AND item.key = ANY(%(keys)s)
"""

_logger: Final = logging.getLogger("agentjobs_async.engines")


class Sweep:
    """Looks several times in `stalled_after` seconds for work that nobody does, and hands it out again.

    Work that is handed out twice does no harm, so whatever is in doubt is handed out.

    Attributes:
        running: The chunks that this worker runs, by their numbers in the queue.
        worker_ids: The names under which the queue knows this worker; it has a new one after each outage.
    """

    def __init__(self, app: App, task: str, queue: str, journal: Journal, stalled_after: float) -> None:
        self.running: set[int] = set()
        self.worker_ids: set[int] = set()
        self._app = app
        self._task = task
        self._queue = queue
        self._journal = journal
        self._stalled_after = stalled_after
        self._idle: frozenset[int | None] = frozenset()
        self._after = 0

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            for part in (self._of_the_dead, self._of_this_worker, self._of_nobody):
                try:
                    await part()
                except Exception as error:  # noqa: BLE001 - who sweeps no more is missed by nobody
                    _logger.info("no sweep this time: %s", error_text(error))
            await asyncio.sleep(self._stalled_after / _BEATS)

    async def _of_the_dead(self) -> None:
        """Hand out the chunks of workers who give no sign of life, or have left."""
        jobs = self._app.job_manager
        for job in await jobs.get_stalled_jobs(task_name=self._task, seconds_since_heartbeat=self._stalled_after):
            await jobs.retry_job(job)

    async def _of_this_worker(self) -> None:
        """Hand out the chunks that this worker holds and does not run, as when its word of their end was lost.

        Only what two sweeps found so: what was just fetched does not run yet, and what has just ended is held still.
        """
        jobs = self._app.job_manager
        held: dict[int | None, Job] = {}
        for worker_id in tuple(self.worker_ids):
            found = list(await jobs.list_jobs_async(task=self._task, status="doing", worker_id=worker_id))
            held |= {job.id: job for job in found if job.id not in self.running}
            if not found:
                self.worker_ids.discard(worker_id)  # the next chunk that it runs brings it back
        idle, self._idle = self._idle, frozenset(held)
        for number in self._idle & idle:
            _logger.warning("a chunk that was held and not run is handed out again")
            await jobs.retry_job(held[number])

    async def _of_nobody(self) -> None:
        """Hand out items that are waited for by no living owner, and carried by no chunk.

        As when a chunk was done, since an item of it had become unknown, before its stalled owner got the answer.
        """
        found = await entries_of(self._journal).unfollowed(self._journal.owner_timeout, self._after, _MOST_ITEMS)
        self._after = found[-1][0] if len(found) == _MOST_ITEMS else 0
        keys = [key for _, key in found]
        carried = await self._carried(keys) if keys else frozenset[str]()
        if left := [key for key in keys if key not in carried]:
            _logger.warning("%d items that nobody waited for are handed out again", len(left))
            tasks: list[Any] = [{"keys": left[start : start + _CHUNK]} for start in range(0, len(left), _CHUNK)]
            await self._app.configure_task(self._task, queue=self._queue).batch_defer_async(*tasks)

    async def _carried(self, keys: Collection[str]) -> Collection[str]:
        """Return those of the keys that a chunk carries which is done some day."""
        rows = await self._app.connector.execute_query_all_async(_CARRIED, task=self._task, keys=list(keys))
        return {row["key"] for row in rows}

"""The queues of due jobs, and their stale entries."""

import asyncio

import pytest

from agentjobs_async._polling.due import DueJobs
from agentjobs_async._polling.tracked import Tracked
from tests.polled import clock, refs
from tests.polling.counted_polls import Polling

pytestmark = pytest.mark.looptime


async def test_stale_entries() -> None:
    """Jobs that were removed or moved while they were ready take no memory, and do not count as waiting."""
    polling = Polling(1000)
    polling.queue.pause_until(clock() + 10, clock())
    for job in polling.jobs[:900]:
        polling.queue.make_ready(job)
        polling.queue.remove(job)
    for job in polling.jobs[900:]:
        polling.queue.make_ready(job)
        polling.queue.make_urgent(job, clock())
    assert polling.queue.waiting() == 100
    assert len(polling.queue._due.ready) + len(polling.queue._due.urgent) <= 300
    await asyncio.sleep(30)
    assert [number for _, number in polling.taken()] == list(range(900, 1000))
    assert polling.queue.waiting() == polling.queue._due.stale == 0


async def test_taking_what_is_ready() -> None:
    """Taking all ready jobs leaves the stale ones out; those of the other queues stay counted."""
    due, jobs = DueJobs(clock), [Tracked(ref, None, clock(), 0) for ref in refs(6)]
    for job in jobs[:4]:
        job.bucket = Tracked.READY
        due.ready.append(job)
    due.urgent.extend(jobs[4:])
    jobs[5].bucket = Tracked.URGENT
    for job in (jobs[0], jobs[4]):
        due.note_stale(job)
        job.bucket = Tracked.NOWHERE
    assert (due.entries(), due.stale) == (6, 2)
    assert due.take_ready() == jobs[1:4]
    assert (due.entries(), due.stale) == (2, 1)

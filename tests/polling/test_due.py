"""The queues of due jobs, and their stale entries."""

import asyncio
from collections import deque
from collections.abc import Callable

from agentjobs_async._polling.due import DueJobs
from agentjobs_async._polling.fair_queue import FairQueue
from agentjobs_async._polling.stats import Second
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef
from tests.polled import clock, in_memory, refs
from tests.polling.counted_polls import Polling

pytestmark = in_memory


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
    due, jobs = DueJobs(clock, lambda: False), [Tracked(ref, None, clock(), Second(0)) for ref in refs(6)]
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


async def test_ready_again() -> None:
    """A job that was made urgent while it was ready, was polled, and is ready again, is counted once after a sweep."""
    due, jobs = DueJobs(clock, lambda: False), [Tracked(ref, None, clock(), Second(0)) for ref in refs(100)]
    for job in (jobs[0], *jobs):
        job.bucket = Tracked.READY
        due.ready.append(job)
    due.note_stale(jobs[0])  # as when it was made urgent
    jobs[0].bucket = Tracked.READY
    for job in jobs[1:]:
        due.note_stale(job)
        job.bucket = Tracked.NOWHERE
    assert due.entries() - due.stale == 1
    assert due.take_ready() == jobs[:1]
    assert due.stale == 0


def test_set_aside_again() -> None:
    """A slow job that was urgent for a while is counted once when the ready jobs are taken."""
    due, tracked = DueJobs(lambda: 0.0, lambda: False), Tracked(JobRef("docs", "job_1"), None, 0.0, Second(0))
    due.put_aside(tracked)
    due.note_stale(tracked)
    tracked.bucket = Tracked.URGENT
    due.put_aside(tracked)
    assert due.take_ready() == []
    assert (due.entries(), due.stale) == (2, 1)


def due_jobs(now: Callable[[], float], *, limited: bool = False) -> DueJobs:
    """Return ready jobs: ten of a large project, then one of a small one."""
    due = DueJobs(now, lambda: limited)
    due.begin_waiting()
    for number in range(11):
        tracked = Tracked(JobRef("small" if number == 10 else "large", f"job_{number}"), None, 0.0, Second(0))
        tracked.bucket = Tracked.READY
        due.ready.append(tracked)
    return due


def order(due: DueJobs) -> list[str]:
    """Take all ready jobs; return their projects."""
    return [due.ready.popleft().ref.project_id for _ in range(len(due.ready))]


def test_a_backlog() -> None:
    """Projects take turns once jobs have been ready for a second, and until no job is."""
    now = 100.0
    due = due_jobs(lambda: now)
    now = 100.9
    due.take_turns()
    assert order(due).index("small") == 10
    due = due_jobs(lambda: now)
    now = 102.0
    due.take_turns()
    assert order(due).index("small") < 10
    assert isinstance(due.ready, FairQueue)
    due.begin_waiting()
    assert isinstance(due.ready, deque)


def test_a_backlog_after_a_refusal() -> None:
    """A refusal brings back the order of arrival for a minute, unless a limit is in force."""
    now = 100.0
    due = due_jobs(lambda: now)
    now = 102.0
    due.take_turns()
    due.refused()
    for now in (103.0, 161.0):  # noqa: B007 - it is the clock
        due.take_turns()
        assert isinstance(due.ready, deque)
    now = 162.0
    due.take_turns()
    assert order(due).index("small") < 10
    limited = due_jobs(lambda: now, limited=True)
    limited.order_by_gain()
    limited.refused()
    assert order(limited).index("small") < 10

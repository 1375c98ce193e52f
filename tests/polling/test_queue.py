"""Which job is polled next, and when."""

import asyncio

from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef
from tests.polled import clock, in_memory, peak
from tests.polling.counted_polls import Polling

pytestmark = in_memory


async def test_order() -> None:
    """Ready jobs are polled at once; the others when they are due, the earliest first, whenever they were placed."""
    polling = Polling(4)
    for job, delay in zip(polling.jobs, (3, 1, 2), strict=False):
        polling.put(delay, [job])
    polling.queue.enqueue(polling.jobs[3], clock())
    await asyncio.sleep(10)
    assert polling.newly_sent() == [(0, 3), (1, 1), (2, 2), (3, 0)]


async def test_equal_due_times() -> None:
    """Polls that are due at the same time are sent in that time, however many they are; none comes early or late."""
    polling = Polling(1000)
    polling.put(5)
    await asyncio.sleep(10)
    assert polling.newly_sent() == [(5, number) for number in range(1000)]


async def test_deadlines_first() -> None:
    """A job near a deadline is polled before ready jobs, within the rate that is for all."""
    polling = Polling(5, per_second=1)
    for job in polling.jobs:
        polling.queue.enqueue(job, clock())
    assert (polling.queue.has_backlog(), polling.waiting()) == (True, 4)
    polling.queue.make_urgent(polling.jobs[4], clock())
    polling.queue.make_urgent(polling.jobs[3], clock())
    polling.queue.make_urgent(polling.jobs[4], clock())
    await asyncio.sleep(10)
    assert polling.newly_sent() == [(0, 0), (1, 4), (2, 3), (3, 1), (4, 2)]


async def test_urgent() -> None:
    """A near deadline makes a later poll due now, but not before the job's `not_before`, and no poll in flight."""
    polling = Polling(4)
    plain, paused, in_flight, paused_sooner = polling.jobs
    polling.put(50, [plain, paused])
    polling.put(5, [paused_sooner])
    paused.not_before = paused_sooner.not_before = clock() + 9
    for job in (plain, paused, in_flight, paused_sooner):
        polling.queue.make_urgent(job, clock())
    await asyncio.sleep(100)
    assert polling.newly_sent() == [(0, 0), (9, 1), (9, 3)]


async def test_reschedule_earlier() -> None:
    """A later poll is rescheduled; one that is due earlier, ready or in flight stays where it is."""
    polling = Polling(4, per_second=0.5)
    later, sooner, ready, in_flight = polling.jobs
    polling.put(50, [later])
    polling.put(5, [sooner])
    polling.queue.enqueue(in_flight, clock())
    polling.queue.enqueue(ready, clock())
    for job in polling.jobs:
        polling.queue.reschedule_earlier(job, clock() + 10, clock())
    await asyncio.sleep(100)
    assert polling.newly_sent() == [(0, 3), (2, 2), (5, 1), (10, 0)]


async def test_removed() -> None:
    """A removed job is never polled, wherever it was queued."""
    polling = Polling(3, per_second=0.1)
    polling.queue.enqueue(polling.jobs[0], clock())
    polling.queue.enqueue(polling.jobs[1], clock())
    polling.put(5, polling.jobs[2:])
    for job in polling.jobs[1:]:
        polling.queue.remove(job)
        assert job.bucket == Tracked.REMOVED
    await asyncio.sleep(100)
    assert polling.newly_sent() == [(0, 0)]
    assert polling.waiting() == 0


async def test_moved_often() -> None:
    """However often jobs are moved, so that stale items of the heap are swept meanwhile, each is polled once."""
    polling = Polling(1000)
    for delay in (9, 7, 5):
        for job in polling.jobs:
            polling.queue.reschedule_earlier(job, clock() + delay, clock())
            if job.bucket == Tracked.NOWHERE:
                polling.put(delay, [job])
    await asyncio.sleep(20)
    assert sorted(number for _, number in polling.newly_sent()) == list(range(1000))


async def test_pause() -> None:
    """No poll is sent during a pause, not even for a deadline; after it all are, spread."""
    polling = Polling(100)
    for number, job in enumerate(polling.jobs[:50]):
        polling.put(1 + number / 100, [job])
    await asyncio.sleep(0.5)
    polling.queue.pause_until(clock() + 4, clock())
    for job in polling.jobs[50:]:
        polling.queue.enqueue(job, clock())
    polling.queue.make_urgent(polling.jobs[99], clock())
    assert (polling.queue.has_backlog(), polling.waiting()) == (False, 50)
    await asyncio.sleep(3.9)
    assert polling.newly_sent() == []
    await asyncio.sleep(6)
    sent = polling.newly_sent()
    assert len({number for _, number in sent}) == len(sent) == 100
    assert sent[0] == (4.5, 99)
    assert [number for _, number in sent[1:]] == [*range(50, 99), *range(50)]
    assert peak([at for at, _ in sent if at < 5]) <= 8
    assert peak([at for at, _ in sent]) <= 66


async def test_longest_pause() -> None:
    """Of several pauses the longest counts."""
    polling = Polling(1)
    polling.put(1)
    for seconds in (5, 9, 3):
        polling.queue.pause_until(clock() + seconds, clock())
    await asyncio.sleep(8.9)
    assert polling.newly_sent() == []
    await asyncio.sleep(5)
    assert polling.newly_sent() == [(10, 0)]


async def test_placed_during_a_pause() -> None:
    """A poll placed during a pause is due when it would be anyway, but not before the pause is over."""
    polling = Polling(2)
    polling.queue.pause_until(clock() + 4, clock())
    await asyncio.sleep(2)
    polling.put(1, polling.jobs[:1])
    polling.put(5, polling.jobs[1:])
    await asyncio.sleep(10)
    assert polling.newly_sent() == [(4, 0), (7, 1)]


async def test_paused_project() -> None:
    """Polls of a paused project are put off, some thousands as well, and none of another project waits for them."""
    polling = Polling(3000)
    other = Tracked(JobRef("elsewhere", "job"), None, clock())
    polling.jobs.append(other)
    polling.queue.pause(polling.jobs[0].ref, 429, clock() + 20, clock() + 20, clock(), clock())
    polling.put(0)
    polling.put(5, polling.jobs[:1])
    await asyncio.sleep(6)
    assert [number for _, number in polling.newly_sent()] == [3000]
    assert polling.waiting() == 3000
    polling.queue.make_urgent(polling.jobs[1], clock())
    assert polling.newly_sent() == []
    await asyncio.sleep(40)
    sent = polling.newly_sent()
    assert sorted(number for _, number in sent) == list(range(3000))
    assert sent[0][0] >= 20
    assert peak([at for at, _ in sent]) <= 330
    assert next(at for at, number in sent if number == 1) <= 21
    assert polling.waiting() == 0


async def test_refused_while_a_good_answer_came() -> None:
    """Two jobs whose polls were in flight when a good answer came do not pause all polls; two later ones do."""
    polling = Polling(2)
    began = clock()
    await asyncio.sleep(1)
    polling.queue.answered(clock(), clock())
    for begins, sent in ((began, [0, 1]), (clock(), [])):
        for job in polling.jobs:
            polling.queue.pause(job.ref, 503, clock() + 60, clock() + 60, clock(), begins)
        polling.put(5)
        await asyncio.sleep(10)
        assert [number for _, number in polling.newly_sent()] == sent


async def test_closed() -> None:
    """A closed queue dispatches no more."""
    polling = Polling(3)
    polling.put(1)
    polling.queue.pause_until(clock() + 5, clock())
    polling.queue.enqueue(polling.jobs[0], clock())
    polling.queue.close()
    dispatches = polling.dispatches
    await asyncio.sleep(10)
    assert (polling.newly_sent(), polling.dispatches, polling.queue.has_backlog()) == ([], dispatches, False)

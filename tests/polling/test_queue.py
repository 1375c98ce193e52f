"""Which job is polled next, and when."""

import asyncio

import pytest

from agentjobs_async import AgentJob, JobRef, JobTracker
from agentjobs_async._polling.tracked import Place, Tracked
from agentjobs_async.errors import NotSentError, RateLimitedError, ServerError
from tests.polled import clock, every, in_memory, peak, stand_still
from tests.polling.counted_polls import Polling

pytestmark = in_memory


def fail(polling: Polling, job: Tracked, error: Exception, wish: float = 0.0) -> None:
    """Answer the poll of a job, which began now, with an error, and put the next one 5 s, or `wish`, later."""
    now = clock()
    job.put_off(now + max(wish, 5.0))
    job.hold_until(now + wish)
    job.error = error
    polling.queue.on_answer(job, error, now, now)


async def test_order() -> None:
    """Ready jobs are polled at once; the others when they are due, the earliest first, whenever they were placed."""
    polling = Polling(4)
    for job, delay in zip(polling.jobs, (3, 1, 2, 0), strict=True):
        polling.put(delay, [job])
    assert await polling.run(10) == [(0, 3), (1, 1), (2, 2), (3, 0)]


async def test_equal_due_times() -> None:
    """Polls that are due at the same time are sent in that time, however many they are; none comes early or late."""
    polling = Polling(1000)
    polling.put(5)
    assert await polling.run(10) == [(5, number) for number in range(1000)]


async def test_deadlines_first() -> None:
    """A job near a deadline is polled before ready jobs, within the rate that is for all."""
    polling = Polling(5, per_second=1)
    polling.put(0)
    for number in (4, 3, 4):
        polling.queue.hurry(polling.jobs[number], clock())
    assert await polling.run(10) == [(0, 4), (1, 3), (2, 0), (3, 1), (4, 2)]


async def test_deadlines_in_an_outage() -> None:
    """The turn of other jobs between urgent ones is none in an outage: a job near its deadline waits for no trial."""
    polling = Polling(50)
    polling.put(0)
    await polling.run(1)
    for job in polling.jobs:
        fail(polling, job, NotSentError("gone", "refused"))
    polling.put(0)
    await polling.run(1)
    urgent = [job for job in polling.jobs if job.place is Place.DUE][:20]
    for job in urgent:
        polling.queue.hurry(job, clock())
    assert len(await polling.run(1)) == 20


async def test_urgent() -> None:
    """A near deadline makes a later poll due now, but not before the job's `not_before`, and no poll in flight."""
    polling = Polling(4)
    plain, paused, in_flight, paused_sooner = polling.jobs
    polling.put(0, [in_flight])
    assert polling.queue.next(clock()) is in_flight
    polling.put(50, [plain, paused])
    polling.put(5, [paused_sooner])
    paused.hold_until(clock() + 9)
    polling.put(50, [paused])
    for job in (plain, paused, in_flight, paused_sooner):
        polling.queue.hurry(job, clock())
    assert await polling.run(100) == [(0, 0), (0, 3), (9, 1)]


async def test_urgent_after_a_pause() -> None:
    """Where a pause ends between the last poll's time and the deadline, that poll goes out first of all that waited."""
    for error in (ServerError(503, None, 10.0, "later"), RateLimitedError(429, None, 10.0, "later")):
        polling = Polling(100)
        polling.put(0)
        await polling.run(1)
        for job in polling.jobs:
            fail(polling, job, error, wish=10.0)
            polling.queue.put(job, job.due, clock())
        await polling.run(9.5)
        polling.queue.hurry(polling.jobs[80], clock())
        sent = await polling.run(20)
        assert sent[0] == (11, 80)
        assert sorted(number for _, number in sent) == list(range(100))


async def test_delay_of_an_urgent_job() -> None:
    """What a near deadline has cut short is no delay by which the pace of what piles up is set."""
    polling = Polling(2)
    job, other = polling.jobs
    other.put_off(clock() + 5)
    polling.queue.on_answer(other, None, clock(), clock())
    polling.put(500, [job])
    polling.queue.hurry(job, clock())
    assert polling.queue.next(clock()) is job
    polling.queue.on_answer(job, None, clock(), clock())  # it has ended: no next poll is due
    for _ in range(2):
        fail(polling, other, NotSentError("gone", "refused"))
        fail(polling, job, NotSentError("gone", "refused"))
    polling.put(0)
    sent = await polling.run(20)
    assert [round(at) for at, _ in sent[:2]] == [5, 10]


async def test_put_earlier() -> None:
    """A later poll is put earlier; one that is due earlier, ready or in flight stays where it is."""
    polling = Polling(4, per_second=0.5)
    later, sooner, ready, in_flight = polling.jobs
    polling.put(50, [later])
    polling.put(5, [sooner])
    polling.put(0, [in_flight])
    assert polling.queue.next(clock()) is in_flight
    polling.put(0, [ready])
    for job in polling.jobs:
        polling.queue.put_earlier(job, clock() + 10, clock())
    assert await polling.run(100) == [(2, 2), (5, 1), (10, 0)]


async def test_removed() -> None:
    """A removed job is never polled, wherever it was queued."""
    polling = Polling(3, per_second=0.1)
    polling.put(0, polling.jobs[:2])
    polling.put(5, polling.jobs[2:])
    for job in polling.jobs[1:]:
        polling.queue.remove(job)
    assert await polling.run(100) == [(0, 0)]
    assert {job.place for job in polling.jobs[1:]} == {Place.GONE}


async def test_moved_often() -> None:
    """However often jobs are moved, each is polled once."""
    polling = Polling(1000)
    for delay in (9, 7, 5):
        for job in polling.jobs:
            polling.queue.put_earlier(job, clock() + delay, clock())
    assert await polling.run(20) == [(5, number) for number in range(1000)]


async def test_pause_of_all() -> None:
    """No poll is sent in a pause of all, not even for a deadline; after it they go out in order, spread."""
    polling = Polling(100)
    polling.put(1)
    assert len(await polling.run(2)) == 100
    fail(polling, polling.jobs[5], TimeoutError())
    for job in polling.jobs[:2]:
        fail(polling, job, ServerError(503, None, 4.0, "later"), wish=4.0)
    polling.put(1)
    polling.queue.hurry(polling.jobs[99], clock())
    assert await polling.run(3.9) == []
    sent = await polling.run(20)
    assert [number for _, number in sent] == [99, 0, 2, 3, 1, *range(4, 99)]
    assert peak([at for at, _ in sent]) <= 1.1 * 100 / 5 + 2


async def test_held_project() -> None:
    """A held project's jobs keep their places, and no other job waits for them; then they leave at their own pace."""
    polling = Polling(3000)
    other = Tracked(JobRef("elsewhere", "job"), None, clock())
    polling.jobs.append(other)
    polling.queue.add(other, clock())
    polling.put(5, [other])
    polling.put(0, polling.jobs[:1])
    assert polling.queue.next(clock()) is polling.jobs[0]
    polling.jobs[0].put_off(clock() + 9)
    polling.queue.on_answer(polling.jobs[0], None, clock(), clock())
    fail(polling, polling.jobs[1], RateLimitedError(429, None, 20.0, "later"), wish=20.0)
    polling.put(1, polling.jobs[:3000])
    assert await polling.run(19) == [(5, 3000)]
    assert polling.waiting() == 3000
    polling.queue.hurry(polling.jobs[7], clock())
    sent = await polling.run(40)
    assert [number for _, number in sent] == [7, 1, *(number for number in range(3000) if number not in {1, 7})]
    assert sent[0][0] >= 20
    assert peak([at for at, _ in sent]) <= 1.1 * 3000 / 9 + 20


async def test_project_that_grows_while_it_is_held() -> None:
    """After a pause a project's jobs leave at the pace of those that it has by now, not when it was paused."""
    polling = Polling(1)
    polling.put(0)
    assert len(await polling.run(1)) == 1
    polling.jobs[0].put_off(clock() + 9)
    polling.queue.on_answer(polling.jobs[0], None, clock(), clock())
    fail(polling, polling.jobs[0], RateLimitedError(429, None, 20.0, "later"), wish=20.0)
    new = [Tracked(JobRef("docs", f"new_{number}"), None, clock()) for number in range(500)]
    polling.jobs += new
    for job in new:
        polling.queue.add(job, clock())
    assert await polling.run(19) == []
    assert len(await polling.run(10)) == 500


async def test_holds_of_projects_that_left() -> None:
    """Nothing is left of a hold once it is over and all jobs of its project have gone, whichever is first."""
    for seconds in (0, 8, 12):
        polling = Polling(3, per_second=0.1)
        polling.put(0)
        await polling.run(1)
        fail(polling, polling.jobs[0], RateLimitedError(429, None, 5.0, "later"), wish=5.0)
        await polling.run(seconds)
        for job in polling.jobs:
            polling.queue.remove(job)
        await polling.run(30)
        assert polling.queue._holds.by_project == {}, seconds


async def test_jobs_that_come_due_as_a_hold_ends() -> None:
    """What comes due in the moment in which its project's hold ends leaves at the project's pace, as what was held."""
    polling = Polling(1000)
    polling.put(0, polling.jobs[:1])
    assert await polling.run(1) == [(0, 0)]
    polling.jobs[0].put_off(clock() + 20)
    polling.queue.on_answer(polling.jobs[0], None, clock(), clock())
    fail(polling, polling.jobs[0], RateLimitedError(429, None, 20.0, "later"), wish=20.0)
    polling.put(20, polling.jobs)
    sent = await polling.run(60)
    assert [number for _, number in sent] == list(range(1000))
    assert peak([at for at, _ in sent]) <= 1.1 * 1000 / 20 + 2


async def test_outage() -> None:
    """In an outage the next one due is polled after each usual delay; when the server answers, all go on, spread."""
    polling = Polling(50)
    polling.put(0)
    assert len(await polling.run(1)) == 50
    for job in polling.jobs:
        fail(polling, job, NotSentError("gone", "refused"))
    polling.put(1)
    tried = await polling.run(21)
    assert [number for _, number in tried] == [0, 1, 2, 3]
    assert [round(at) for at, _ in tried] == [5, 10, 15, 20]
    now = clock()
    polling.queue.on_answer(polling.jobs[3], None, now, now)
    assert peak([at for at, _ in await polling.run(10)]) <= 1.1 * 50 / 5 + 2


@pytest.mark.parametrize(
    ("error", "wish"),
    [
        (NotSentError("gone", "refused"), 0.0),
        (RateLimitedError(429, None, 20.0, "later"), 20.0),
        (ServerError(503, None, 20.0, "later"), 20.0),
    ],
)
async def test_jobs_that_ended_meanwhile(error: Exception, wish: float) -> None:
    """What piled up has left within a usual delay, also where each of these polls finds that its job has ended."""
    polling = Polling(200)
    polling.put(0)
    assert len(await polling.run(1)) == 200
    polling.jobs[0].put_off(clock() + 5)
    polling.queue.on_answer(polling.jobs[0], None, clock(), clock())
    for job in polling.jobs:
        fail(polling, job, error, wish)
    polling.put(19)
    await polling.run(19)
    polling.queue.on_answer(polling.jobs[0], None, clock(), clock())
    assert len(await polling.run(6.5, ends=True)) == 200


async def test_loop_that_stood_still() -> None:
    """What came due while the loop stood still is not all polled at once."""
    polling = Polling(100)
    polling.put(0, polling.jobs[:1])
    assert await polling.run(1) == [(0, 0)]
    polling.jobs[0].put_off(clock() + 5)
    polling.queue.on_answer(polling.jobs[0], None, clock(), clock())
    polling.put(2)
    stand_still(30)
    sent = await polling.run(20)
    assert [number for _, number in sent] == list(range(100))
    assert peak([at for at, _ in sent]) <= 1.1 * 100 / 5 + 2


async def test_slow_jobs() -> None:
    """Jobs of which a poll was cut have half of the slots at most; those that wait for one are the next to have it."""
    polling = Polling(10, slots=4)
    for job in polling.jobs[:6]:
        job.be_patient(2.0)
    polling.put(0)
    assert [number for _, number in await polling.run(1)] == [0, 1, 6, 7, 8, 9]
    assert polling.queue.has_slow
    polling.put(100, polling.jobs[1:2])
    polling.put(0, polling.jobs[9:])
    assert [number for _, number in await polling.run(1)] == [2, 9]
    polling.queue.remove(polling.jobs[0])
    polling.queue.hurry(polling.jobs[5], clock())
    assert [number for _, number in await polling.run(1)] == [5]


async def test_slow_jobs_beside_urgent_ones() -> None:
    """Urgent jobs without end, one after another, stop no slow job: each third poll may be of one."""
    polling = Polling(40, per_second=5, slots=4)
    slow, urgent = polling.jobs[:6], polling.jobs[6:]
    for job in slow:
        job.be_patient(2.0)
    polling.put(0, slow)
    assert [number for _, number in await polling.run(1)] == [0, 1]
    polling.put(1000, slow[:2])
    sent = []
    for _ in range(4):
        for job in urgent:
            if job.place is Place.IN_FLIGHT:
                polling.put(100, [job])
            polling.queue.hurry(job, clock())
        sent += [number for _, number in await polling.run(1)]
    assert [index for index, number in enumerate(sent) if number < 6] == [0, 3]
    assert [number for number in sent if number < 6] == [2, 3]


async def test_urgent_jobs_beside_slow_ones_in_an_outage() -> None:
    """Where slow jobs have to wait since the server is not reached, urgent ones go on without them."""
    polling = Polling(40, slots=4)
    for job in polling.jobs[:3]:
        job.be_patient(2.0)
    polling.put(0)
    assert len(await polling.run(1)) == 39
    for job in polling.jobs[3:]:
        fail(polling, job, NotSentError("gone", "refused"))
    polling.put(100, polling.jobs[:1])
    for job in polling.jobs[3:]:
        polling.put(0, [job])
        polling.queue.hurry(job, clock())
    assert len(await polling.run(1)) >= 37


async def test_closed() -> None:
    """A closed queue gives no job."""
    polling = Polling(3)
    polling.put(1, polling.jobs[:2])
    polling.put(0, polling.jobs[2:])
    polling.queue.close()
    assert await polling.run(10) == []
    polling.queue.remove(polling.jobs[0])
    assert polling.jobs[0].place is Place.GONE


@pytest.mark.parametrize("projects", [1, 2])
async def test_pause_while_short_jobs_come_and_go(projects: int) -> None:
    """A pause does not slow the polls for good where new jobs keep coming, and each takes two polls."""

    async def get_job(ref: JobRef) -> AgentJob:
        if 300 <= clock() - made < 305:
            raise RateLimitedError(429, None, 5.0, "later")
        seen.append(ref)
        return AgentJob(ref.job_id, ref.project_id, "completed" if seen.count(ref) == 2 else "active")

    async def wait(number: int) -> None:
        begun = clock()
        await tracker.wait_for_job(JobRef(f"docs{number % projects}", f"job_{number}"), timeout=None)
        if begun - made >= 500:
            took.append(clock() - begun)

    made, seen, took = clock(), list[JobRef](), list[float]()
    async with JobTracker(get_job, policy=every(10)) as tracker, asyncio.TaskGroup() as group:
        for number in range(1200):
            group.create_task(wait(number))
            await asyncio.sleep(0.5)
    assert len(took) == 200
    assert max(took) <= 10.5

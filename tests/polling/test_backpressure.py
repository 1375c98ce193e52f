"""For whom a Retry-After is; when an outage begins and ends, and who is asked meanwhile."""

import asyncio
from collections.abc import Iterable
from typing import Final

import pytest

from agentjobs_async import JobRef
from agentjobs_async._polling.backpressure import Pauses, ProjectBackoffs, RememberedPauses
from agentjobs_async._polling.tracked import Tracked
from tests.polled import clock, gaps, in_memory, peak
from tests.polling.counted_polls import Polling
from tests.rows import failures

pytestmark = in_memory

A, B = JobRef("docs", "a"), JobRef("docs", "b")
ELSEWHERE = JobRef("elsewhere", "a")
ENOUGH: Final = 10


def record(pauses: Pauses, ref: JobRef, status: int) -> bool:
    """Record an answer that no good one overlaps."""
    return pauses.record(ref, status, overlaps=False)


def test_two_make_all() -> None:
    """One source never pauses all polls; two with no good answer between do, and so does each one after them."""

    def check(status: int, other: JobRef) -> None:
        pauses = Pauses()
        assert not any(record(pauses, A, status) for _ in range(3))
        pauses.answered()
        assert not record(pauses, other, status)
        assert record(pauses, A, status)
        assert record(pauses, A, status)
        pauses.answered()
        assert not record(pauses, A, status)

    assert failures(check, (503, B), (503, ELSEWHERE), (429, ELSEWHERE)) == {}


def test_overlapped_by_a_good_answer() -> None:
    """Two polls that were in flight while a good answer came do not pause all polls."""
    pauses = Pauses()
    for status in (429, 503):
        for ref in (A, ELSEWHERE, A):
            assert not pauses.record(ref, status, overlaps=True)
    assert not record(pauses, A, 429)
    assert record(pauses, ELSEWHERE, 429)


async def test_good_answer_between_two_refusals() -> None:
    """A good answer between the refusals of two jobs shows that neither was meant for all: others are polled."""
    polling, now = Polling(3), clock()
    first, second, _ = polling.jobs
    polling.queue.pause(first.ref, 503, now + 60, now + 60, now, now)
    polling.queue.answered(now, now)
    polling.queue.pause(second.ref, 503, now + 60, now + 60, now, now)
    polling.put(1, polling.jobs[2:])
    await asyncio.sleep(ENOUGH)
    assert polling.newly_sent() == [(1, 2)]


def test_kinds_are_apart() -> None:
    """A limited project and another project's unavailable job are two things, and two jobs of a project are one."""
    pauses = Pauses()
    assert not record(pauses, B, 500)
    assert not record(pauses, A, 429)
    assert not record(pauses, ELSEWHERE, 503)
    assert not record(pauses, B, 429)


def test_backoffs_of_projects() -> None:
    """Each project has pauses of its own; a good answer makes the next one of its project the first of a row."""
    backoffs = ProjectBackoffs()
    assert [backoffs.refused("docs", now, now) for now in (0.0, 1.0)] == [1.0, 3.0]
    assert backoffs.refused("blog", 3.0, 3.0) == 4.0
    backoffs.answered("blog")
    assert [backoffs.refused(name, 4.0, 4.0) for name in ("docs", "blog")] == [8.0, 5.0]


def test_backoffs_are_bounded() -> None:
    """Of very many projects that are refused, those are kept whose polls are held back."""
    backoffs = ProjectBackoffs()
    for number in range(5000):
        backoffs.refused(f"project_{number}", number, number)
    assert len(backoffs._backoffs) <= 1024
    assert backoffs.refused("project_4999", 5000, 5000) == 5002


def test_remembered_pause() -> None:
    """The pause of a job is remembered until the next wait gets it, and no longer than it lasts."""
    remembered = RememberedPauses()
    remembered.remember(A, 10.0, 1.0)
    assert [remembered.pop(ref, 5.0) for ref in (B, A, A)] == [5.0, 10.0, 5.0]
    remembered.remember(A, 10.0, 1.0)
    assert remembered.pop(A, 12.0) == 12.0


def test_remembered_pauses_are_bounded() -> None:
    """A bounded number of pauses is remembered; those that are over make room."""
    remembered = RememberedPauses()
    for start in (0.0, 100.0):
        for number in range(1100):
            remembered.remember(JobRef("docs", f"job_{start}_{number}"), start + 50, start)
        assert list(remembered._until.values()) == [start + 50] * 1024


def outage(polling: Polling, jobs: Iterable[Tracked], delay: float = 5) -> None:
    """Record that the server was not reached for `jobs`; `ENOUGH` of them make an outage."""
    now = clock()
    for job in jobs:
        polling.queue.outage.not_reached(job, now + delay, now)
        polling.queue.put(job, now + delay, now)


async def test_one_probe_for_all() -> None:
    """In an outage one job is polled for all, with its own delay; once the server answers, all go on."""
    polling = Polling(30)
    polling.put(1, polling.jobs[ENOUGH:])
    outage(polling, polling.jobs[:ENOUGH])
    probes = []
    for _ in range(10):
        await asyncio.sleep(5.01)
        ((_, number),) = polling.newly_sent()
        probes.append(number)
        outage(polling, [polling.jobs[number]])
    assert all(gaps(probes))  # never the one that has just failed
    polling.queue.outage.reached()
    assert polling.newly_sent() == []
    await asyncio.sleep(20)
    assert sorted(number for _, number in polling.newly_sent()) == list(range(30))


@pytest.mark.parametrize("failed", [[*range(ENOUGH - 1)], [5] * 50])
async def test_no_outage_yet(failed: list[int]) -> None:
    """A few jobs that were not reached make no outage, nor does one job alone, nor many with answers between them."""
    polling = Polling(30)
    polling.put(1, polling.jobs[20:])
    outage(polling, [polling.jobs[number] for number in failed])
    polling.queue.outage.reached()
    outage(polling, polling.jobs[ENOUGH : 2 * ENOUGH - 1])
    await asyncio.sleep(4)
    assert [number for _, number in polling.newly_sent()] == list(range(20, 30))


async def test_outage_of_few() -> None:
    """Where there are fewer jobs than it takes otherwise, all of them make an outage."""
    polling = Polling(3)
    outage(polling, polling.jobs[:2])
    assert not polling.queue.has_backlog()
    outage(polling, polling.jobs[2:])
    await asyncio.sleep(6)
    assert len(polling.newly_sent()) == 1


async def test_lone_job_is_its_own_probe() -> None:
    """A lone job is its own probe, with its own delay."""
    polling = Polling(1)
    for _ in range(5):
        outage(polling, polling.jobs)
        await asyncio.sleep(5.01)
    assert [at for at, _ in polling.newly_sent()] == pytest.approx([5, 10.01, 15.02, 20.03, 25.04], abs=0.02)


async def test_last_job_is_the_probe() -> None:
    """When all others have left in an outage, the last job goes on as the probe, with its own delay."""
    polling = Polling(2)
    outage(polling, polling.jobs)
    for other in polling.jobs[:1]:
        polling.queue._jobs.pop(other.ref)
        polling.queue.remove(other)
    for at in (1, 6, 11):
        await asyncio.sleep(polling.made + at + 0.02 - clock())
        assert [number for _, number in polling.newly_sent()] == [1]
        outage(polling, polling.jobs[1:])


async def test_probe_leaves() -> None:
    """When the job that is the probe leaves, another takes its part, soon."""
    polling = Polling(5)
    outage(polling, polling.jobs, delay=20)
    gone = polling.queue.outage._probe
    assert gone is not None
    polling.queue._jobs.pop(gone.ref)
    polling.queue.remove(gone)
    await asyncio.sleep(15)
    ((at, number),) = polling.newly_sent()
    assert at == 1
    assert polling.jobs[number] is not gone


async def test_probe_whose_poll_hangs() -> None:
    """A probe whose poll does not come back is replaced by another job after half a minute."""
    polling = Polling(5)
    outage(polling, polling.jobs)
    await asyncio.sleep(100)
    sent = polling.newly_sent()
    assert [at for at, _ in sent] == [5, 35, 65, 95]
    assert len({number for _, number in sent}) == 4


async def test_no_job_to_probe() -> None:
    """When the polls of all jobs hang in an outage, the first that is placed again is the next probe."""
    polling = Polling(3)
    outage(polling, polling.jobs)
    for number in (2, 0, 1):
        polling.queue.make_urgent(polling.jobs[number], clock())
    assert [number for _, number in polling.newly_sent()] == [2, 0, 1]
    await asyncio.sleep(50)
    polling.put(1, polling.jobs[1:2])
    await asyncio.sleep(50)
    assert polling.newly_sent() == [(65, 1)]


async def test_all_leave_in_an_outage() -> None:
    """When no job is left, the outage is forgotten: a new job is polled at once."""
    polling = Polling(3)
    outage(polling, polling.jobs)
    for job in polling.jobs:
        del polling.queue._jobs[job.ref]
        polling.queue.remove(job)
    await asyncio.sleep(2)
    polling.queue._jobs[polling.jobs[0].ref] = polling.jobs[0]
    polling.queue.enqueue(polling.jobs[0], clock())
    assert polling.newly_sent() == [(2, 0)]


async def test_deadline_in_an_outage() -> None:
    """A deadline's last poll goes out in an outage, and may find the server back."""
    polling = Polling(20)
    outage(polling, polling.jobs[:ENOUGH], delay=20)
    polling.put(1, polling.jobs[ENOUGH:])
    await asyncio.sleep(3)
    assert polling.newly_sent() == []
    polling.queue.make_urgent(polling.jobs[15], clock())
    assert polling.newly_sent() == [(3, 15)]
    polling.queue.outage.reached()
    await asyncio.sleep(5)
    assert sorted(number for _, number in polling.newly_sent()) == [10, 11, 12, 13, 14, 16, 17, 18, 19]


async def test_pause_in_an_outage() -> None:
    """A pause asked for in an outage counts; jobs that are due in it are polled after it."""
    polling = Polling(4)
    outage(polling, polling.jobs, delay=2)
    polling.queue.pause_until(clock() + 7, clock())
    await asyncio.sleep(6.9)
    assert polling.newly_sent() == []
    await asyncio.sleep(20)
    assert sorted(number for _, number in polling.newly_sent()) == [0, 1, 2, 3]


async def test_release_takes_no_longer_than_10_s() -> None:
    """After a long outage, what has waited goes out over 10 s, and does not wait as long again."""
    polling = Polling(100)
    outage(polling, polling.jobs[:ENOUGH], delay=1000)
    for job in polling.jobs[ENOUGH:]:
        polling.queue.enqueue(job, clock())
    await asyncio.sleep(500)
    polling.queue.outage.reached()
    await asyncio.sleep(11)
    times = [at for at, _ in polling.newly_sent()]
    assert len(times) == 90
    assert times[-1] - times[0] == pytest.approx(10, abs=0.2)
    assert peak(times) <= 11

"""Polls that hang while other jobs wait for their slots: how long they may, and how many slots such jobs use."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final

from agentjobs_async import AgentJob, HttpTimeouts, JobRef, JobTracker, PollBudget, PollFailed
from tests.polled import Polled, cancelled, clock, ended, every, in_memory, kinds, never, refs, swallows, takes
from tests.polling.working import Working, working
from tests.rows import failures_at_once
from tests.scripted import session_of

pytestmark = in_memory


def noting(lasted: list[float]) -> Callable[[JobRef], Awaitable[object]]:
    """Return a step that hangs, and notes how long it did."""

    async def hangs(ref: JobRef) -> object:
        began = clock()
        try:
            return await never(ref)
        finally:
            lasted.append(clock() - began)

    return hangs


async def ended_polls(work: Working, count: int) -> None:
    """Wait until so many polls of the first job have ended."""
    while [number for _, number in work.answers].count(0) < count:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.05)


async def test_polls_that_are_slow_for_all() -> None:
    """A server that is slow for all is left its time: polls that wait for a slot cut none of those in flight."""
    events: list[Any] = []
    get_job = Polled("completed", latency=25)
    async with JobTracker(get_job, budget=PollBudget(in_flight=2), hooks=[events.append]) as tracker:
        await ended(*(tracker.watch(ref) for ref in refs(10)))
    assert kinds(events) == ["WaitStarted"] * 10 + ["JobPolled", "WaitEnded"] * 10
    assert 125 <= clock() - get_job._made <= 135


async def test_overtaken() -> None:
    """A poll is cut once twice as many others as there are slots have ended in its time, and not within 1 s."""

    async def check(slots: int, latency: float, least: float) -> None:
        lasted: list[float] = []
        get_job = Polled(takes(latency), jobs={"job_0": [noting(lasted)]})
        async with working(get_job, count=50, slots=slots, delay=1):
            await asyncio.sleep(60)
        assert least <= lasted[0] <= least + 1

    assert await failures_at_once(check, (2, 0.7, 2.8), (3, 2.5, 7.5), (3, 0.1, 1.0), (20, 8.0, 24.0)) == {}


async def test_room_that_nobody_needs() -> None:
    """A poll may hang while no other job is due, a slot is free, or nothing may be polled."""

    async def check(count: int, slots: int, delay: float) -> None:
        lasted: list[float] = []
        get_job = Polled(jobs={"job_0": [noting(lasted)]}, latency=0.1)
        async with working(get_job, count, slots, delay) as work:
            await asyncio.sleep(20)
            work.limits.share("journal", SimpleNamespace(per_second=0.0))
            await asyncio.sleep(80)
            assert lasted == []
            work.limits.share("journal", None)
            work.workers.wake()

    assert await failures_at_once(check, (1, 1, 0.0), (9, 9, 0.0), (2, 2, 0.0), (2, 1, 0.0)) == {}


SLOW: Final = [f"job_{number}" for number in range(0, 100, 10)]


async def test_slow_jobs_are_seen() -> None:
    """Jobs that are slow themselves are seen at saturation, the others go on meanwhile, and nothing is cut for ever."""

    async def check(slots: int, seconds: float) -> None:
        events: list[Any] = []
        steps = [takes(seconds)] * 2 + [takes(seconds, "completed")]
        get_job = Polled(jobs=dict.fromkeys(SLOW, steps), latency=0.1)
        budget = PollBudget(in_flight=slots)
        async with JobTracker(get_job, policy=every(0.1), budget=budget, hooks=[events.append]) as tracker:
            waits = [tracker.watch(ref, timeout=None) for ref in refs(100)]
            await asyncio.sleep(30)
            before = len(get_job.asked)
            await asyncio.sleep(10)
            fast = [job_id for _, job_id in get_job.asked[before:] if job_id not in SLOW]
            assert len(fast) >= 0.45 * 10 * slots / 0.1 * (0.2 if slots == 1 else 1)
            await ended(*waits[::10])
            assert clock() - get_job._made <= 500 / slots + 60
            await cancelled(waits)
        failed = [event for event in events if isinstance(event, PollFailed)]
        cut = Counter(event.ref.job_id for event in failed if "cut" in str(event.error))
        assert set(cut) <= set(SLOW)
        assert max(cut.values(), default=0) <= 3

    assert await failures_at_once(check, (1, 0.9), (2, 3.0), (5, 3.0), (20, 3.0)) == {}


async def test_half_of_the_slots() -> None:
    """Of jobs whose polls were cut, no more are polled at once than half of the slots, whatever is due."""
    flying = Counter[str]()
    most = 0

    async def hangs(ref: JobRef) -> object:
        nonlocal most
        flying[ref.job_id] += 1
        first = flying[ref.job_id] == 1
        slow.update([ref.job_id] if not first else [])
        most = max(most, slow.total())
        try:
            return await asyncio.Event().wait()
        finally:
            slow.subtract([ref.job_id] if not first else [])

    slow = Counter[str]()
    get_job = Polled(jobs={key: [hangs] for key in [f"job_{number}" for number in range(0, 100, 4)]}, latency=0.1)
    async with JobTracker(get_job, policy=every(1), budget=PollBudget(in_flight=8)) as tracker:
        waits = [tracker.watch(ref, timeout=100 + number) for number, ref in enumerate(refs(100))]
        await asyncio.sleep(20)
        before = len(get_job.asked)
        await asyncio.sleep(60)
        assert len([job_id for _, job_id in get_job.asked[before:]]) >= 0.9 * 60 * 4 / 0.1
        assert tracker.stats().due >= 1
        await ended(*waits)
        assert (tracker.stats().jobs, tracker.stats().due, tracker.stats().in_flight) == (0, 0, 0)
    assert most == 4
    assert min(flying.values()) >= 3


async def test_patience_doubles() -> None:
    """Each time that a poll is cut, the next of its job has twice the time, up to half a minute in a tracker."""
    lasted: list[float] = []
    get_job = Polled(jobs={"job_0": [noting(lasted)]}, latency=0.1)
    async with JobTracker(get_job, policy=every(0.5), budget=PollBudget(in_flight=2)) as tracker:
        waits = [tracker.watch(ref, timeout=150) for ref in refs(50)]
        await ended(*waits)
    allowed = [1, 2, 4, 8, 16, 30, 30]
    assert [0 <= took + get_job.latency - least <= 1.1 for took, least in zip(lasted, allowed, strict=False)] == [
        True
    ] * len(allowed)


async def test_job_that_is_fast_again() -> None:
    """A job whose poll was cut, and that answers fast again, is like any other; one that is answered slowly is not."""
    get_job = Polled(jobs={"job_0": [takes(3), takes(3), takes(1.5), takes(0.1)]}, latency=0.1)
    async with working(get_job, count=50, slots=2, delay=0.5) as work:
        await asyncio.sleep(2)
        assert work.jobs[0].patience == 2
        await ended_polls(work, 3)
        assert work.jobs[0].patience == 4
        await ended_polls(work, 4)
        assert not work.jobs[0].is_slow


async def test_slow_jobs_among_themselves() -> None:
    """When nothing else is due, slow jobs that hang still give their slots to those that wait for one."""
    back = asyncio.Event()

    async def hangs(_ref: JobRef) -> object:
        await back.wait()
        return "completed"

    get_job = Polled(jobs={ref.job_id: [hangs] for ref in refs(9)}, latency=0.1)
    async with JobTracker(get_job, policy=every(0.5), budget=PollBudget(in_flight=4)) as tracker:
        slow = [tracker.watch(ref, timeout=None) for ref in refs(9)]
        await ended(*(tracker.watch(ref, timeout=60) for ref in refs(60)[9:]))
        before = len(get_job.asked)
        await asyncio.sleep(600)
        polls = Counter(job_id for _, job_id in get_job.asked[before:])
        assert sum(count >= 3 for count in polls.values()) >= 8
        back.set()
        assert {type(end) for end in await ended(*slow)} == {AgentJob}


async def test_longest_patience() -> None:
    """However often polls of a job are cut, they have no more time than a poll may take at all, and never below 1 s."""

    async def check(longest_poll: float, allowed: list[float]) -> None:
        lasted: list[float] = []
        get_job = Polled(jobs={"job_0": [noting(lasted)]}, latency=0.1)
        async with working(get_job, 50, slots=2, delay=0.5, longest_poll=longest_poll):
            await asyncio.sleep(60)
        assert [0 <= took + get_job.latency - least <= 1.1 for took, least in zip(lasted, allowed, strict=False)] == [
            True
        ] * len(allowed)

    assert await failures_at_once(check, (7.0, [1, 2, 4, 7, 7]), (0.5, [1, 1, 1, 1])) == {}


async def test_longest_patience_of_a_session() -> None:
    """A session's polls are cut no later than `timeouts.request`; those of a user's own get_job as a tracker's."""

    async def check(longest: float, **settings: Any) -> None:
        async with session_of(timeouts=HttpTimeouts(request=7), **settings) as session:
            assert session._scheduler()._workers._longest == longest

    await check(7.0)
    await check(30.0, get_job=never)


async def test_quick_jobs_while_only_slow_ones_wait() -> None:
    """When only slow jobs wait, which have half of the slots, the polls of other jobs may hang."""
    lasted: list[float] = []
    get_job = Polled(jobs={f"job_{number}": [never] for number in range(1, 5)}, latency=0.1)
    get_job.jobs["job_0"] = [noting(lasted)]
    async with working(get_job, count=6, slots=4, delay=0.5) as work:
        for job in work.jobs[1:5]:
            job.be_patient(1.0)
        await asyncio.sleep(300)
        assert lasted == []
        assert min(len(get_job.at(f"job_{number}")) for number in range(1, 5)) >= 4


async def test_slow_job_that_swallows_its_cut() -> None:
    """A slow job whose cut poll has not left takes no slot of the slow ones: they go on meanwhile."""
    get_job = Polled(jobs={"job_0": [swallows], "job_1": [never]}, latency=0.1)
    async with working(get_job, count=50, slots=2, delay=0.5):
        await asyncio.sleep(99)
    assert get_job.at("job_0") == [0]
    assert len(get_job.at("job_1")) >= 3


async def test_each_cut_is_told_once() -> None:
    """A hook that hears of a cut may end the wait of another poll that hangs: of each poll one event is told."""
    events: list[Any] = []
    waits: list[asyncio.Future[AgentJob]] = []

    def leaves(event: object) -> None:
        events.append(event)
        if isinstance(event, PollFailed):
            waits[1].cancel()

    get_job = Polled(jobs={"job_0": [never], "job_1": [never]})
    async with JobTracker(get_job, policy=every(100), budget=PollBudget(in_flight=2), hooks=[leaves]) as tracker:
        waits += [tracker.watch(ref) for ref in refs(3)]
        await asyncio.sleep(50)
        assert [event.ref for event in events if isinstance(event, PollFailed)] == refs(2)
        assert tracker.stats().polls == 2
        await cancelled(waits)

"""All polls of one tracker: their order, budget, deadlines and sharing, and what they do when a server suffers."""

import asyncio
from math import inf
from typing import Any, cast

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AuthError,
    InvalidInputError,
    JobPolled,
    JobRef,
    JobTracker,
    NotFoundError,
    PollBudget,
    ProtocolError,
    RateLimitedError,
    ServerError,
    TransportError,
    WaitStarted,
    WaitTimeoutError,
)
from tests.polled import (
    ACTIVE,
    REF,
    Polled,
    cancelled,
    clock,
    ended,
    every,
    gaps,
    in_memory,
    kinds,
    missing,
    never,
    peak,
    refs,
)
from tests.rows import failures_at_once

pytestmark = in_memory


def limited(seconds: float) -> RateLimitedError:
    return RateLimitedError(429, None, seconds, "slow down")


def failed(status: int, seconds: float | None = None) -> ServerError:
    return ServerError(status, None, seconds, "no")


# Order and budget.


async def test_first_come_first_served() -> None:
    """With one slot, jobs are polled in the order in which their waits began, and again in that of their answers."""
    get_job = Polled(latency=1)
    async with JobTracker(get_job, policy=every(3), budget=PollBudget(in_flight=1)) as tracker:
        waits = [tracker.watch(ref) for ref in refs(4)]
        await asyncio.sleep(12)
        assert [job_id for _, job_id in get_job.asked[:12]] == ["job_0", "job_1", "job_2", "job_3"] * 3
        assert get_job.times == list(range(12))
        await cancelled(waits)


# Sharing.


async def test_each_its_own_deadline() -> None:
    """Waiters of one job time out each at its own deadline, each with the polls that served it."""
    get_job = Polled()
    async with JobTracker(get_job, policy=every(4)) as tracker:
        waits = [tracker.watch(REF, timeout=seconds) for seconds in (5, 10, 20.5)]
        await asyncio.sleep(7)
        waits.append(tracker.watch(REF, timeout=10))
        errors: list[Any] = await ended(*waits)
    assert [type(error) for error in errors] == [WaitTimeoutError] * 4
    assert [error.elapsed for error in errors] == pytest.approx([5, 10, 20.5, 10], abs=0.02)
    assert get_job.at() == pytest.approx([0, 4, 4.5, 8.5, 9, 13, 16, 19.5], abs=0.03)  # last polls among them
    assert [error.polls for error in errors] == [3, 5, 8, 4]


async def test_last_one_leaving_stops_the_polls() -> None:
    """When the last waiter leaves, the poll in flight is cut and nothing more is asked; nothing stays behind."""
    for amid in (True, False):
        get_job = Polled(latency=2)
        events: list[Any] = []
        async with JobTracker(get_job, policy=every(3), hooks=[events.append]) as tracker:
            waits = [tracker.watch(REF) for _ in range(3)]
            await asyncio.sleep(1 if amid else 3)
            for wait in waits:
                wait.cancel()
            assert (tracker.stats().jobs, tracker.stats().in_flight, tracker.stats().due) == (0, 0, 0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await asyncio.sleep(100)
        assert get_job.at() == [0]
        started, ends = events[:3], [event for event in events[3:] if not isinstance(event, JobPolled)]
        assert started == [WaitStarted(REF)] * 3
        assert kinds(ends) == ["WaitEnded"] * 2 + ["PollFailed"] * amid + ["WaitEnded"]
        assert [type(event.error) for event in ends] == [asyncio.CancelledError] * (3 + amid)


async def test_comes_back() -> None:
    """Who comes after the last one left is polled at once, and gets the whole of its own time and grace."""
    get_job = Polled("active", missing, "completed")
    async with JobTracker(get_job, policy=every(20)) as tracker:
        tracker.watch(REF).cancel()
        await asyncio.sleep(40)
        await asyncio.sleep(0)
        first = tracker.watch(REF)
        await asyncio.sleep(5)
        first.cancel()
        second = tracker.watch(REF)
        assert (await second).succeeded
    assert get_job.at() == [40, 45, 65]


# Deadlines.


async def test_cut_at_the_deadline() -> None:
    """A poll in flight at the last deadline of its job is cut; while others still wait for the job it goes on."""
    get_job = Polled("active", never)
    events: list[Any] = []
    async with JobTracker(get_job, policy=every(2), hooks=[events.append]) as tracker:
        first, second = tracker.watch(REF, timeout=5), tracker.watch(REF, timeout=7.5)
        (error,) = await ended(first)
        assert (tracker.stats().in_flight, clock() - get_job._made) == (1, 5)
        (last_error,) = await ended(second)
        assert (tracker.stats().in_flight, clock() - get_job._made) == (0, 7.5)
        await asyncio.sleep(0)
    for given in (error, last_error):
        assert isinstance(given, WaitTimeoutError)
        assert (given.polls, given.last_job, type(given.last_error)) == (2, ACTIVE, TransportError)
    assert kinds(events) == ["WaitStarted", "WaitStarted", "JobPolled", "WaitEnded", "PollFailed", "WaitEnded"]
    assert [event.error for event in events[3::2]] == [error, last_error]


async def test_deadlines_that_no_clock_shows() -> None:
    """A deadline that falls between two ticks of the loop's clock, by a rounding, ends its wait."""
    async with JobTracker(Polled(), policy=every(1)) as tracker:
        await asyncio.sleep(0.1)
        began = clock()
        with pytest.raises(WaitTimeoutError):
            await tracker.wait_for_job(REF, timeout=0.2)  # 0.1 + 0.2 > 0.3
        assert clock() - began == pytest.approx(0.2)


async def test_finished_waits_of_long_deadlines() -> None:
    """Memory does not grow with waits that ended long before their deadlines, or timed out."""
    get_job = Polled("completed")
    async with JobTracker(get_job, policy=every(1000)) as tracker:
        scheduler = tracker._scheduler()
        living = tracker.watch(JobRef("docs", "living"), timeout=100_000)
        get_job.jobs["living"] = ["active"]
        for round_ in range(25):
            await ended(*(tracker.watch(ref, timeout=10_000 + round_) for ref in refs(100)))
            for ref in refs(20):
                tracker.watch(ref, timeout=5_000).cancel()
        deadlines = scheduler._deadlines
        assert sum(map(len, deadlines._wheel._buckets.values())) == 1
        assert len(deadlines._wheel._heap) <= 1024 + 2
        with pytest.raises(WaitTimeoutError):
            await living
        assert (deadlines._wheel._buckets, list(deadlines._due._left)) == ({}, [])


# A server that suffers.


async def ends_of(tracker: JobTracker, jobs: list[JobRef], began: float) -> dict[str, float]:
    """Wait for all of `jobs`; return when each of those that completed did, in seconds from `began`."""
    ends: dict[str, float] = {}

    async def wait(ref: JobRef) -> None:
        result = await tracker.wait_for_job(ref, timeout=25)
        assert result.succeeded
        ends[ref.job_id] = clock() - began

    await asyncio.gather(*map(wait, jobs), return_exceptions=True)
    return ends


async def test_answer_of_a_poll_in_flight_lifts_a_pause_of_all() -> None:
    """When two jobs have held all others back, a good answer of a poll in flight shows that this was not for all."""
    get_job = Polled("active", "completed", jobs={"job_0": [failed(503, 60)], "job_1": [failed(503, 60)]}, latency=1)
    slow = JobRef("docs", "slow")

    async def later(_ref: JobRef) -> str:
        await asyncio.sleep(4)
        return "active"

    get_job.jobs["slow"] = [later, "completed"]
    async with JobTracker(get_job, policy=every(3), budget=PollBudget(in_flight=3)) as tracker:
        began = clock()
        ends = await ends_of(tracker, [*refs(2), slow, *refs(20)[2:]], began)
    assert set(ends) == {"slow", *(ref.job_id for ref in refs(20)[2:])}
    assert [at for at in get_job.times if at] == [at for at in get_job.times if at >= 5]
    assert len(get_job.at("job_0")) == len(get_job.at("job_1")) == 1


async def test_pause_that_ends_early_makes_no_poll_early() -> None:
    """A job that was refused amid a pause of all is polled no sooner than after its delay, if that pause ends early."""
    answers: list[Any] = [(1, failed(503, 9)), (1, failed(503, 9)), (2, failed(503, 9)), (3, "active")]

    async def first(ref: JobRef) -> str:
        seconds, answer = answers[int(ref.job_id[-1])]
        await asyncio.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return cast("str", answer)

    get_job = Polled("active", jobs={ref.job_id: [first, "active"] for ref in refs(4)})
    async with JobTracker(get_job, policy=every(20)) as tracker:
        waits = [tracker.watch(ref) for ref in refs(4)]
        await asyncio.sleep(40)
        assert [wait.done() for wait in waits] == [False] * 4
    assert get_job.at("job_2")[0] == 0
    assert 22 <= get_job.at("job_2")[1] <= 22 + 20


def unless(projects: dict[str, tuple[float, float]]) -> Polled:
    """Return a service that refuses the polls of some projects in a span of time, and does not say for how long."""
    made = clock()

    async def state(ref: JobRef) -> str:
        begin, end = projects.get(ref.project_id, (inf, inf))
        if begin <= clock() - made < end:
            raise limited(0.0)
        return "active"

    return Polled(state)


async def test_429_without_a_wish() -> None:
    """It holds back the polls of its project for 1 s, doubling to 60 s, until a good answer; others go on."""
    get_job = unless({"docs": (5.0, 200.0)})
    jobs = [*(JobRef("docs", f"docs_{number}") for number in range(50)), JobRef("blog", "blog")]
    async with JobTracker(get_job, policy=every(0.5)) as tracker:
        waits = [tracker.watch(ref) for ref in jobs]
        await asyncio.sleep(270)
        await cancelled(waits)
    assert max(gaps(get_job.at("blog"))) <= 0.6
    asked = sorted(at for at, job_id in get_job.asked if job_id != "blog" and at >= 5)
    pauses = [gap for gap in gaps(asked) if gap > 0.6]
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60], abs=0.6)
    assert len(get_job.within(269, 270)) >= 90


async def test_429_without_a_wish_of_two_projects() -> None:
    """However many projects are refused so, those that are not go on: none of the answers asked for a pause."""
    get_job = unless({"docs": (0.0, inf), "blog": (0.0, inf)})
    async with JobTracker(get_job, policy=every(1)) as tracker:
        waits = [tracker.watch(JobRef(name, name)) for name in ("docs", "blog", "news")]
        await asyncio.sleep(50)
        await cancelled(waits)
    assert [len(get_job.at(name)) for name in ("docs", "blog", "news")] == [6, 6, 50]


async def test_pause_outlives_its_wait() -> None:
    """A job's Retry-After still counts for the next wait for it."""
    get_job = Polled("active", failed(500, 50), "completed")
    async with JobTracker(get_job, policy=every(3)) as tracker:
        await ended(tracker.watch(REF, timeout=10))
        assert (await tracker.wait_for_job(REF)).succeeded
    assert get_job.at() == pytest.approx([0, 3, 53], abs=0.02)


async def test_after_a_silence() -> None:
    """What had no slot while the server was silent is not all polled at once when it answers again."""

    async def check(silent: float) -> None:
        end = clock() + silent

        async def state(_ref: JobRef) -> str:
            await asyncio.sleep(end - clock())
            return "active"

        get_job = Polled(state)
        async with JobTracker(get_job, policy=every(6), budget=PollBudget(in_flight=5)) as tracker:
            waits = [tracker.watch(ref) for ref in refs(60)]
            await asyncio.sleep(silent + 30)
            await cancelled(waits)
        assert len({job_id for at, job_id in get_job.asked if at < silent + 12}) == 60
        assert peak(get_job.within(silent, silent + 30)) <= 25

    assert await failures_at_once(check, 3, 40) == {}


# Somebody says that something happened.


async def test_notify() -> None:
    """`notify` brings one poll, soon, however often it is called; the usual delay follows."""

    async def check(times: int) -> None:
        get_job = Polled()
        async with JobTracker(get_job, policy=every(60)) as tracker:
            wait = tracker.watch(REF, timeout=None)
            await asyncio.sleep(10)
            assert [tracker.notify(REF) for _ in range(times)] == [True] * times
            await asyncio.sleep(100)
            wait.cancel()
        assert get_job.at() == pytest.approx([0, 10, 70], abs=0.02)

    assert await failures_at_once(check, 1, 1000) == {}


async def test_notify_in_flight() -> None:
    """A hint that comes while a poll is in flight brings one more after it: the answer may be older than the hint."""
    get_job = Polled("active", "completed", latency=2)
    async with JobTracker(get_job, policy=every(60)) as tracker:
        wait = tracker.watch(REF)
        await asyncio.sleep(1)
        assert [tracker.notify(ACTIVE) for _ in range(5)] == [True] * 5
        await wait
        assert not tracker.notify(ACTIVE)  # it has ended
    assert get_job.at() == pytest.approx([0, 2], abs=0.3)


async def test_notify_storm() -> None:
    """Hints without end bring no more than four polls a second."""

    async def check(latency: float) -> None:
        get_job = Polled(latency=latency)
        async with JobTracker(get_job, policy=every(60)) as tracker:
            wait = tracker.watch(REF)
            for _ in range(1000):
                await asyncio.sleep(0.01)
                tracker.notify(REF)
            wait.cancel()
        assert 10 <= len(get_job.asked) <= 41

    assert await failures_at_once(check, 0.0, 0.05) == {}


async def test_notify_of_others() -> None:
    """`notify` does nothing for a job without waits, which it says, or one that is to be polled soon anyway."""
    get_job = Polled(latency=1)
    async with JobTracker(get_job, policy=every(2), budget=PollBudget(in_flight=1)) as tracker:
        waits = [tracker.watch(ref) for ref in refs(2)]
        assert [tracker.notify(ref) for ref in [REF, *refs(3)]] == [True, True, True, False]
        with pytest.raises(InvalidInputError, match="job must be"):
            tracker.notify("job_1")  # type: ignore[arg-type]  # refused at run time, too
        assert tracker.stats().jobs == 2
        await asyncio.sleep(1.5)
        assert get_job.asked == [(0, "job_0"), (1, "job_1")]
        for wait in waits:
            wait.cancel()
        assert [tracker.notify(ref) for ref in refs(2)] == [False, False]
    assert get_job.at("job_2") == []


async def test_notify_keeps_to_a_pause() -> None:
    """`notify` polls no earlier than the server's Retry-After allows."""
    get_job = Polled(limited(20), "completed")
    async with JobTracker(get_job, policy=every(1)) as tracker:
        wait = tracker.watch(REF)
        await asyncio.sleep(1)
        tracker.notify(REF)
        await wait
    assert get_job.at() == pytest.approx([0, 20], abs=0.02)


async def test_grace_of_the_job() -> None:
    """A 404 is ridden out from the start of the first wait under way, or the last sight: all waits end together."""

    async def check(steps: list[object], starts: list[float], ends_at: list[float]) -> None:
        get_job = Polled(*steps)
        async with JobTracker(get_job, policy=every(2, not_found_grace=9, answer_grace=0)) as tracker:
            waits, ends = [], list[float]()
            for start in starts:
                await asyncio.sleep(get_job._made + start - clock())
                waits.append(tracker.watch(REF))
                waits[-1].add_done_callback(lambda _: ends.append(clock() - get_job._made))
            errors = await ended(*waits)
        assert all(isinstance(error, NotFoundError) for error in errors)
        assert len(set(map(id, errors))) == len(errors)
        assert ends == pytest.approx(ends_at, abs=0.2)

    rows = ([missing], [0, 3, 5, 15.5], [10, 10, 10, 25.5]), (["active", "active", missing], [0, 4.5], [12, 12])
    assert await failures_at_once(check, *rows) == {}


# What answers mean for waits that share them.


async def test_refusals_of_two() -> None:
    """What has no grace ends all waits of its job, one with the error itself and each other one with a copy."""

    async def check(refusal: AgentJobsError, polls: int) -> None:
        get_job = Polled(refusal)
        async with JobTracker(get_job, policy=every(1, max_bad_answers=3)) as tracker:
            errors = await ended(tracker.watch(REF), tracker.watch(REF))
        assert errors[0] is refusal
        assert type(errors[1]) is type(refusal)
        assert errors[1] is not refusal
        assert len(get_job.asked) == polls

    gone = NotFoundError(410, None, None, "gone")
    assert await failures_at_once(check, (gone, 1), (ProtocolError("bad_json", "x"), 3)) == {}


async def test_sight_is_shared() -> None:
    """Who joins a job that others have seen rides out with them what does not show it."""

    async def check(refusal: AgentJobsError) -> None:
        get_job = Polled("active", *[refusal] * 5, "active", "completed")
        async with JobTracker(get_job, policy=every(2, max_bad_answers=2)) as tracker:
            seeing = tracker.watch(REF)
            await asyncio.sleep(3)
            results = await ended(seeing, tracker.watch(ACTIVE), tracker.watch(REF))
        assert all(isinstance(result, AgentJob) for result in results)

    rows = (AuthError(401),), (NotFoundError(410),), (ProtocolError("bad_json", "x"),)
    assert await failures_at_once(check, *rows) == {}

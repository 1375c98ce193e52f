"""A wait through a tracker: a future of its end, and its changes."""

import asyncio
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    AuthError,
    JobTracker,
    SessionClosedError,
    WaitEnded,
    WaitTimeoutError,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.polled import ACTIVE, DONE, REF, Polled, assert_nothing_left, changed, clock, every, forbidden, let_go, never

pytestmark = pytest.mark.looptime


# Futures.


async def test_watch() -> None:
    """A watch is a future: awaited by many, with callbacks, and its job stays in it."""
    called: list[object] = []
    async with JobTracker(Polled("active", "completed"), policy=every(2)) as tracker:
        watch = tracker.watch(REF)
        assert asyncio.isfuture(watch)
        watch.add_done_callback(called.append)
        results = await asyncio.gather(watch, watch, asyncio.wait_for(watch, 10))
        assert list(results) == [DONE] * 3
        assert (called, watch.result()) == ([watch], DONE)
        assert not watch.cancel()
        assert_nothing_left(tracker)


async def test_watch_cancelled() -> None:
    """Cancelling a watch leaves, once, with its message; cancelling it again is no more than with any future."""
    events: list[Any] = []
    async with JobTracker(Polled("active"), policy=every(2), hooks=[events.append]) as tracker:
        watch = tracker.watch(REF)
        await asyncio.sleep(1)
        assert watch.cancel("enough")
        assert not watch.cancel()
        assert watch.cancelled()
        assert_nothing_left(tracker)
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await watch
    assert [type(event).__name__ for event in events] == ["WaitStarted", "JobPolled", "WaitEnded"]


async def test_cancelled_task_leaves() -> None:
    """Cancelling the task that waits leaves, be it by hand or by a timeout around it."""
    async with JobTracker(Polled(never)) as tracker:
        waiting = asyncio.ensure_future(tracker.wait_for_job(REF))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await let_go()
        assert_nothing_left(tracker)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await tracker.wait_for_job(REF)
        await let_go()
        assert_nothing_left(tracker)


async def test_on_update() -> None:
    """`on_update` sees the job at first sight and at each change; one that raises is logged, and disturbs nobody."""
    seen: list[list[AgentJob]] = [[], [], []]

    def faulty(job: AgentJob) -> None:
        seen[2].append(job)
        raise ZeroDivisionError

    get_job = Polled("active", "active", changed("m"), OSError(), changed("m"), "completed")
    async with JobTracker(get_job, policy=every(2)) as tracker:
        first = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=seen[0].append))
        third = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=faulty))
        await asyncio.sleep(1)
        known = AgentJob("job_1", "docs", "active", model="older")
        second = asyncio.ensure_future(tracker.wait_for_job(known, on_update=seen[1].append))
        await asyncio.gather(first, second, third)
    assert seen == [
        [ACTIVE, changed("m"), DONE],
        [known, ACTIVE, changed("m"), DONE],
        [ACTIVE, changed("m"), DONE],
    ]


async def test_late_comer_is_told_at_once() -> None:
    """Who joins a job that the tracker has seen already is told its state at once."""
    seen: list[AgentJob] = []
    async with JobTracker(Polled(), policy=every(60)) as tracker:
        watch = tracker.watch(REF)
        await asyncio.sleep(10)
        late = asyncio.ensure_future(tracker.wait_for_job(REF, on_update=seen.append))
        await asyncio.sleep(0)
        assert seen == [ACTIVE]
        watch.cancel()
        late.cancel()
        await asyncio.gather(watch, late, return_exceptions=True)


async def test_on_update_that_leaves() -> None:
    """`on_update` may cancel its own wait and others: they leave, and the others go on."""
    waits: list[asyncio.Task[AgentJob]] = []

    def leave(_job: AgentJob) -> None:
        for wait in waits[:2]:
            wait.cancel()

    async with JobTracker(Polled("active", "completed", latency=1), policy=every(1)) as tracker:
        waits += [asyncio.ensure_future(tracker.wait_for_job(REF, on_update=leave)) for _ in range(3)]
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert_nothing_left(tracker)
    assert [type(result) for result in results] == [asyncio.CancelledError, asyncio.CancelledError, AgentJob]


# One job's changes.


async def test_updates() -> None:
    """The state now, then each change, until the end, the terminal state included; then the iteration is over."""
    get_job = Polled("active", "active", changed("m"), OSError(), changed("m"), changed("n"), "completed")
    async with JobTracker(get_job, policy=every(5)) as tracker:
        async with tracker.updates(REF) as changes:
            seen = [(round(clock()), job) async for job in changes]
            assert [job async for job in changes] == []
        assert_nothing_left(tracker)
    assert seen == [(0, ACTIVE), (10, changed("m")), (25, changed("n")), (30, DONE)]


async def test_slow_reader_gets_the_newest() -> None:
    """Who reads slowly gets the newest state, no backlog, and the last one in any case."""
    get_job = Polled(*(changed(str(number)) for number in range(100)), "completed")
    async with JobTracker(get_job, policy=every(1)) as tracker, tracker.updates(REF) as changes:
        models = []
        async for job in changes:
            models.append(job.model)
            await asyncio.sleep(30.4)
    assert models == ["0", "30", "60", "91", None]


@pytest.mark.parametrize("known", [ACTIVE, DONE])
async def test_updates_of_a_known_job(known: AgentJob) -> None:
    """A job that is given is the state now; one that has ended is all there is, without a poll."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=every(5), hooks=[events.append]) as tracker:
        async with tracker.updates(known) as changes:
            assert await anext(changes) is known
            assert [job async for job in changes] == [DONE] * (known is ACTIVE)
    assert get_job.at() == [0, 5][: 2 * (known is ACTIVE)]
    assert sum(isinstance(event, WaitEnded) for event in events) == 1


@pytest.mark.parametrize(
    ("step", "kind"),
    [(forbidden, AuthError), (LookupError(), LookupError), ("active", WaitTimeoutError), (never, WaitTimeoutError)],
)
@pytest.mark.parametrize("first", [[], ["active"]])
async def test_error_of_updates(first: list[object], step: object, kind: type[Exception]) -> None:
    """The wait's error comes out of the iteration after the last state; then the iteration is over."""
    async with (
        JobTracker(Polled(*first, step), policy=every(2, answer_grace=0)) as tracker,
        tracker.updates(REF, timeout=9) as changes,
    ):
        seen = []
        with pytest.raises(kind):
            async for job in changes:
                seen.append(job)
        assert seen == [ACTIVE] * (bool(first) or step == "active")
        assert [job async for job in changes] == []


async def test_leaving_updates_early() -> None:
    """Leaving the block stops the polling and leaves nothing; the iteration is over, with no error."""
    get_job = Polled("active", never)
    async with JobTracker(get_job, policy=every(2)) as tracker:
        async with tracker.updates(REF) as changes:
            async for _ in changes:
                break
            await asyncio.sleep(3)
        await let_go()
        assert_nothing_left(tracker)
        assert [job async for job in changes] == []
    assert get_job.at() == [0, 2]


async def test_cancelled_amid_updates() -> None:
    """A reader that is cancelled leaves, too."""
    async with JobTracker(Polled(), policy=every(2)) as tracker:

        async def read() -> None:
            async with tracker.updates(REF) as changes:
                async for _ in changes:
                    pass

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(5)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert_nothing_left(tracker)


async def test_updates_share_their_stream() -> None:
    """Readers and waiters of one job share one poll stream, each with its own end."""
    get_job = Polled("active", changed("m"), changed("m"), "completed")
    async with JobTracker(get_job, policy=every(5)) as tracker:
        watch = tracker.watch(REF)
        async with tracker.updates(REF) as first, tracker.updates(REF, timeout=7) as second:
            assert [await anext(first), await anext(second)] == [ACTIVE] * 2
            assert [await anext(first), await anext(second)] == [changed("m")] * 2
            with pytest.raises(WaitTimeoutError):
                await anext(second)
            assert [job async for job in first] == [DONE]
        assert await watch == DONE
    assert get_job.at() == pytest.approx([0, 5, 6.3, 11.3], abs=0.02)


async def test_updates_of_a_closed_tracker() -> None:
    """Closing the tracker ends the iteration with its error; a closed one gives none."""
    tracker = JobTracker(Polled())
    async with tracker.updates(REF) as changes:
        assert await anext(changes) == ACTIVE
        await tracker.aclose()
        with pytest.raises(SessionClosedError):
            await anext(changes)
    with pytest.raises(SessionClosedError):
        async with tracker.updates(REF):
            pass


async def test_updates_over_http() -> None:
    """Over HTTP, a web page's view of a job: each stage once."""
    life = JobScript(duration=60, stages=((20, "planning"), (40, "reviewing")))
    async with Emulator(script=life) as emulator, emulator.session(project_id="docs", policy=every(3)) as session:
        created = await session.create_job("Fix it")
        async with session.updates(created.id) as changes:
            assert [job.status async for job in changes] == ["active", "planning", "reviewing", "completed"]

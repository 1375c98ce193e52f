"""A tracker of its own: its settings, its end, its figures and its hints."""

import asyncio
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from agentjobs_async import (
    InvalidInputError,
    JobRef,
    JobTracker,
    PollBudget,
    PollPolicy,
    ServerError,
    SessionClosedError,
    TrackerStats,
    WaitEnded,
    WaitStarted,
)
from tests.polled import DONE, REF, Polled, every, in_memory, never, refs, response
from tests.rows import failures, failures_at_once


def test_settings_that_make_no_sense() -> None:
    """A setting that makes no sense is refused by name when the tracker is made."""

    def check(name: str, **settings: Any) -> None:
        with pytest.raises(InvalidInputError, match=f"^{name} must be"):
            JobTracker(**{"get_job": never} | settings)

    check("get_job", get_job=None)
    check("policy", policy=5)
    check("budget", budget=5)
    check("budget", budget=PollPolicy())
    check("a hook", hooks=[5])
    check("hooks", hooks=print)
    check("a hook", hooks=[asyncio.sleep])


CALLS: Final[list[Callable[[JobTracker], Any]]] = [
    lambda tracker: tracker.wait_for_job(REF),
    lambda tracker: tracker.watch(REF),
    lambda tracker: tracker.watch(DONE),
    lambda tracker: tracker.as_completed([REF]).__aenter__(),
    lambda tracker: tracker.updates(REF).__aenter__(),
    lambda tracker: tracker.notify(REF),
    lambda tracker: tracker.stats(),
    lambda tracker: tracker.__aenter__(),
]


async def called(call: Callable[[JobTracker], Any], tracker: JobTracker) -> object:
    found = call(tracker)
    return await found if asyncio.iscoroutine(found) else found


async def test_closed() -> None:
    """A closed tracker refuses every call, and is closed again without harm."""

    async def check(call: Callable[[JobTracker], Any]) -> None:
        with pytest.raises(SessionClosedError, match="the tracker is closed"):
            await called(call, tracker)

    tracker = JobTracker(never)
    async with tracker:
        pass
    assert await failures_at_once(check, *CALLS) == {}
    await tracker.aclose()


def test_another_loop() -> None:
    """A tracker belongs to the loop of its first use; made it may be without any."""

    async def look() -> None:
        assert tracker.stats().jobs == 0  # binds it to no loop

    async def use() -> None:
        tracker.notify(REF)

    def check(call: Callable[[JobTracker], Any]) -> None:
        with pytest.raises(SessionClosedError, match="another event loop"):
            asyncio.run(called(call, tracker))

    tracker = JobTracker(never)
    asyncio.run(look())
    asyncio.run(use())
    assert failures(check, *CALLS, JobTracker.aclose) == {}


async def test_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child can't use its parent's tracker."""

    async def check(call: Callable[[JobTracker], Any]) -> None:
        with pytest.raises(SessionClosedError, match="forked"):
            await called(call, tracker)

    tracker = JobTracker(never)
    tracker.notify(REF)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        assert await failures_at_once(check, *CALLS, JobTracker.aclose) == {}
    await tracker.aclose()


async def test_never_used() -> None:
    """A tracker that was never used closes, with and without a loop."""
    await JobTracker(never).aclose()
    with pytest.raises(StopIteration):
        JobTracker(never).aclose().send(None)


@in_memory
async def test_closing_lets_cut_polls_leave() -> None:
    """Closing right after waits were cancelled lets their polls leave, with what they clean up."""
    cleaned: list[JobRef] = []

    async def tidy(ref: JobRef) -> Any:
        try:
            return await never(ref)
        finally:
            await asyncio.sleep(0)
            cleaned.append(ref)

    async with JobTracker(tidy) as tracker:
        waits = [tracker.watch(ref) for ref in refs(3)]
        await asyncio.sleep(1)
        waits[0].cancel()
    assert sorted(ref.job_id for ref in cleaned) == ["job_0", "job_1", "job_2"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await asyncio.gather(*waits, return_exceptions=True)


@in_memory
async def test_closed_by_a_hook_and_by_a_callable() -> None:
    """A tracker may be closed by a task that a hook begins, and by its own callable."""
    closing: list[asyncio.Task[None]] = []

    async def closes(_ref: JobRef) -> Any:
        await tracker.aclose()
        return "completed"

    tracker = JobTracker(closes)
    with pytest.raises(SessionClosedError):
        await tracker.wait_for_job(REF)
    tracker = JobTracker(Polled(), hooks=[lambda _: closing.append(asyncio.ensure_future(tracker.aclose()))])
    with pytest.raises(SessionClosedError):
        await tracker.wait_for_job(REF)
    await asyncio.gather(*closing)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_loop_that_ends_without_closing(caplog: pytest.LogCaptureFixture) -> None:
    """A program that ends amid its waits ends quietly: no task is begun while all are cancelled."""
    trackers = []

    async def use() -> None:
        tracker = JobTracker(never, budget=PollBudget(in_flight=1))
        trackers.append(tracker)
        for ref in refs(5):
            _ = tracker.watch(ref)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(use())
        trackers.clear()
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_worker_that_is_thrown_away(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is thrown away with its loop, amid a poll, ends at once: it neither goes on nor complains."""

    async def use() -> None:
        _ = tracker.watch(REF)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    tracker = JobTracker(never)
    loop.run_until_complete(use())
    (worker,) = asyncio.all_tasks(loop)
    coroutine: Any = worker.get_coro()
    coroutine.close()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert asyncio.all_tasks(loop) == {worker}
    worker._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be
    loop.close()
    assert caplog.records == []


@in_memory
async def test_stats() -> None:
    """The snapshot tells what is watched, due and in flight, what was polled, and what was not seen for longest."""
    get_job = Polled(jobs={"job_0": [response(ServerError, 500)]}, latency=1)
    async with JobTracker(get_job, policy=every(4), budget=PollBudget(in_flight=2)) as tracker:
        assert tracker.stats() == TrackerStats(0, 0, 0, 0, 0, 0, 0)
        waits = [tracker.watch(ref, timeout=None) for ref in refs(5)]
        await asyncio.sleep(0.5)
        assert tracker.stats() == TrackerStats(5, 3, 2, 0, 0, 0, 0.5)
        await asyncio.sleep(3)
        stats = tracker.stats()
        assert (stats.jobs, stats.due, stats.in_flight, stats.polls, stats.errors) == (5, 0, 0, 5, 1)
        assert stats.rate == pytest.approx(5 / 3.5)
        assert stats.oldest_unobserved == pytest.approx(3.5)
        await asyncio.sleep(96.5)
        stats = tracker.stats()
        assert stats.rate == pytest.approx(1, abs=0.3)
        assert stats.oldest_unobserved == pytest.approx(100)
        for wait in waits:
            wait.cancel()
        stats = tracker.stats()
        assert (stats.jobs, stats.due, stats.in_flight, stats.oldest_unobserved) == (0, 0, 0, 0)
    assert 0 <= len(get_job.asked) - stats.polls <= 2  # those that were cut were never answered


async def test_stats_in_a_thread() -> None:
    """An exporter may ask for the snapshot in a thread of its own, whatever jobs come and go meanwhile."""
    found: list[TrackerStats | None] = []
    over = threading.Event()

    def export() -> None:
        while not over.is_set():
            found.append(tracker._gauges())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        async with JobTracker(Polled("active"), policy=every(0.01)) as tracker:
            asked = asyncio.ensure_future(asyncio.to_thread(export))
            watches = [tracker.watch(ref) for ref in refs(200)]
            for _ in range(20):
                for watch in [tracker.watch(JobRef("blog", f"job_{number}")) for number in range(200)]:
                    watch.cancel()
                await asyncio.sleep(0.01)
            over.set()
            await asked  # raises what the thread did
            for watch in watches:
                watch.cancel()
    finally:
        over.set()
        sys.setswitchinterval(interval)
    assert len(found) > 1
    assert all(stats is not None and stats.jobs <= 400 for stats in found)


@in_memory
async def test_end_of_what_needs_no_wait() -> None:
    """A wait for a job that has ended already tells the hooks its start and its end, and the future is done."""
    events: list[object] = []
    async with JobTracker(never, hooks=[events.append]) as tracker:
        watch = tracker.watch(DONE)
        assert (watch.done(), watch.result()) == (True, DONE)
        assert await tracker.wait_for_job(DONE) is DONE
    assert events == [WaitStarted(REF), WaitEnded(REF, DONE, None, 0, 0.0)] * 2


@in_memory
async def test_limit_of_polls() -> None:
    """A limit that is set while jobs are polled counts from then on, and can be lifted."""
    get_job = Polled()
    async with JobTracker(get_job, policy=every(1)) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(50)]
        await asyncio.sleep(10)
        tracker.limit_polls(5)
        await asyncio.sleep(10)
        tracker.limit_polls(None)
        await asyncio.sleep(10)
        for wait in waits:
            wait.cancel()
        with pytest.raises(InvalidInputError, match="per_second must be"):
            tracker.limit_polls(0)
    counts = [sum(begin <= at < begin + 9.8 for at in get_job.times) for begin in (0, 10.1, 20.1)]
    assert counts[1] == pytest.approx(49, abs=2)
    assert min(counts[0], counts[2]) >= 400

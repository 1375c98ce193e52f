"""What get-job callables, strategies and hooks are told, and may do: raise, cancel waits, and begin others."""

import asyncio
from typing import Any, cast

import pytest
import tenacity

from agentjobs_async import (
    AgentJob,
    InvalidInputError,
    JobChanged,
    JobPolled,
    JobRef,
    JobTracker,
    PollBudget,
    PollFailed,
    PollPolicy,
    ServerError,
    WaitEnded,
    WaitStarted,
)
from tests.polled import (
    ACTIVE,
    REF,
    Polled,
    changed,
    clock,
    ended,
    every,
    in_memory,
    kinds,
    refs,
)
from tests.rows import failures_at_once

pytestmark = in_memory


# What is called for a poll.


async def test_errors_of_the_callable() -> None:
    """What the callable raises, a cancellation of its own too, ends all waits of its job, and no others."""

    async def check(error: BaseException) -> None:
        get_job = Polled("active", "active", "completed", jobs={"job_1": ["active", error]})
        events: list[Any] = []
        budget = PollBudget(in_flight=1)
        async with JobTracker(get_job, policy=every(1), budget=budget, hooks=[events.append]) as tracker:
            results = await ended(*(tracker.watch(ref) for ref in (REF, refs(1)[0], REF)))
        assert [type(result) for result in results] == [type(error), AgentJob, type(error)]
        assert isinstance(error, asyncio.CancelledError) or results[0] is results[2] is error
        of_it = [event for event in events if (getattr(event, "ref", None) or event.job.ref) == REF]
        assert kinds(of_it) == ["WaitStarted", "WaitStarted", "JobPolled", "PollFailed", "WaitEnded", "WaitEnded"]

    assert await failures_at_once(check, LookupError("mine"), asyncio.CancelledError("mine")) == {}


async def test_strategies_that_fail() -> None:
    """A strategy that raises or gives no delay ends the waits of the job that it was asked for, and no others."""

    async def check(first: object, policy: PollPolicy, kind: type[Exception]) -> None:
        get_job = Polled("completed", jobs={"job_1": [first]})
        events: list[Any] = []
        async with JobTracker(get_job, policy=policy, hooks=[events.append]) as tracker:
            results = await ended(*(tracker.watch(ref) for ref in (REF, REF, *refs(1))))
            assert tracker.stats().jobs == 0
        assert [type(result) for result in results] == [kind, kind, AgentJob]
        ends = [event.error for event in events if isinstance(event, WaitEnded) and event.ref == REF]
        assert ends == results[:2]

    rows: list[tuple[object, PollPolicy, type[Exception]]] = [
        ("active", PollPolicy(wait=lambda _: float("nan")), InvalidInputError),
        (OSError(), PollPolicy(wait=lambda _: -1), InvalidInputError),
        ("active", PollPolicy(wait=lambda state: 1 / (state.attempt_number - 1)), ZeroDivisionError),
        (LookupError(), every(1, retry=lambda state: state.attempt_number / 0), ZeroDivisionError),
    ]
    assert await failures_at_once(check, *rows) == {}


async def test_strategy_that_leaves() -> None:
    """A strategy may cancel the waits that it is asked for: nothing more is polled, and the next wait is served."""

    async def check(divisor: int) -> None:
        waits: list[asyncio.Future[AgentJob]] = []

        def leave(_state: object) -> float:
            for wait in waits:
                wait.cancel()
            return 1 / divisor

        get_job = Polled("active", "completed")
        async with JobTracker(get_job, policy=PollPolicy(wait=leave)) as tracker:
            waits += [tracker.watch(REF), tracker.watch(REF)]
            await ended(*waits)
            await asyncio.sleep(10)
            assert (get_job.at(), tracker.stats().jobs) == ([0], 0)
            assert (await tracker.wait_for_job(REF)).succeeded

    assert await failures_at_once(check, 0, 1) == {}


def test_what_ends_the_program() -> None:
    """A callable that raises what ends the program ends it."""

    async def use(error: type[BaseException]) -> None:
        async def leave(_ref: JobRef) -> AgentJob:
            raise error

        async with JobTracker(leave) as tracker:
            await tracker.wait_for_job(REF)

    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            asyncio.run(use(error))


# Hooks.


async def test_hooks() -> None:
    """Each attempt is one event, each change one more, each wait two, the last with the polls that served it."""
    events: list[Any] = []
    get_job = Polled("active", ServerError(500, None, None, "no"), "active", "reviewing", "completed")
    async with JobTracker(get_job, policy=every(2), hooks=[events.append]) as tracker:
        first = tracker.watch(REF)
        await asyncio.sleep(3)
        second = tracker.watch(REF)
        third = tracker.watch(REF)
        await asyncio.sleep(2)
        third.cancel()
        done = await first
        await second
    reviewing = AgentJob("job_1", "docs", "reviewing")
    fault, left, *ends = [cast("Any", event) for event in events if isinstance(event, PollFailed | WaitEnded)]
    assert (type(fault.error), fault.poll_number) == (ServerError, 2)
    assert (type(left.error), left.polls, left.elapsed) == (asyncio.CancelledError, 1, 2)
    assert [event for event in events if event not in (fault, left)] == [
        WaitStarted(REF),
        JobPolled(ACTIVE, 1),
        WaitStarted(REF),
        WaitStarted(REF),
        JobPolled(ACTIVE, 3),
        JobPolled(reviewing, 4),
        JobChanged(reviewing, ACTIVE),
        JobPolled(done, 5, lateness=2.0),
        JobChanged(done, reviewing),
        *ends,
    ]
    assert [(event.job, event.error, event.polls) for event in ends] == [(done, None, 5), (done, None, 3)]
    assert [event.elapsed for event in ends] == pytest.approx([8, 5], abs=0.05)


async def test_unknown_status_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown status is no end, and is warned about once in all the waits of a tracker."""
    get_job = Polled("reviewing", "reviewing", "completed")
    async with JobTracker(get_job, policy=every(1)) as tracker:
        await ended(*(tracker.watch(ref) for ref in refs(5)))
    assert ["unknown status reviewing" in record.message for record in caplog.records] == [True]


async def test_hooks_that_cancel(caplog: pytest.LogCaptureFixture) -> None:
    """A hook may cancel any wait at any event; what is left goes on, and nothing stays behind."""

    async def check(event: type, whom: slice) -> None:
        waits: list[asyncio.Future[AgentJob]] = []
        ends: list[WaitEnded] = []

        def cancels(told: object) -> None:
            if isinstance(told, WaitEnded):
                ends.append(told)
            if isinstance(told, event):
                for wait in waits[whom]:
                    wait.cancel()

        get_job = Polled("active", ServerError(500, None, None, "no"), changed("m"), "completed")
        async with JobTracker(get_job, policy=every(1), hooks=[cancels]) as tracker:
            waits += [tracker.watch(REF) for _ in range(3)]
            results = await ended(*waits)
            assert tracker.stats().jobs == tracker.stats().in_flight == tracker.stats().due == 0
            assert tracker._scheduler()._jobs == {}
            assert (await tracker.wait_for_job(REF)).succeeded
        assert len(ends) == 4
        assert {type(result) for result in results} <= {AgentJob, asyncio.CancelledError}
        if event not in (WaitStarted, WaitEnded):
            assert asyncio.CancelledError in map(type, results[whom])

    events = (WaitStarted, JobPolled, JobChanged, PollFailed, WaitEnded)
    whom = (slice(None), slice(0, 1), slice(1, None))
    assert await failures_at_once(check, *((event, whose) for event in events for whose in whom)) == {}
    assert caplog.records == []


async def test_hook_that_begins_a_wait(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that is told an end may wait for the same job at once: it is read again."""
    more: list[asyncio.Future[AgentJob]] = []

    def begins(event: object) -> None:
        if isinstance(event, WaitEnded) and len(more) < 3:
            more.append(tracker.watch(REF))

    get_job = Polled("completed")
    async with JobTracker(get_job, hooks=[begins]) as tracker:
        results = await ended(tracker.watch(REF), tracker.watch(REF))
        while not all(wait.done() for wait in more):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
    assert all(isinstance(result, AgentJob) for result in results)
    assert len(more) == 3
    assert get_job.doubled == set()
    assert caplog.records == []


async def test_retry_state_of_a_shared_stream() -> None:
    """Strategies see the polls of the job: its start and its attempts, whichever waits joined meanwhile."""
    seen: list[tuple[int, float, float | None]] = []

    def wait(state: tenacity.RetryCallState) -> float:
        seen.append((state.attempt_number, state.start_time, state.outcome_timestamp))
        return 2

    began = clock()
    get_job = Polled("active", "active", "active", "completed")
    async with JobTracker(get_job, policy=PollPolicy(wait=wait)) as tracker:
        first = tracker.watch(REF)
        await asyncio.sleep(3)
        await ended(first, tracker.watch(REF))
    assert seen == [(1, began, began), (2, began, began + 2), (3, began, began + 4)]

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import tenacity

from agentjobs_async import (
    AgentJob,
    History,
    HistoryDropped,
    JobTracker,
    PollPolicy,
    WaitTimeoutError,
    wait_for_job,
    wait_learned,
)
from tests.polled import REF, Polled, clock, in_memory, living


@in_memory
async def test_shared_job_counts_once() -> None:
    """A job that several callers wait for has one duration: from the start of the oldest wait."""
    history = History()
    async with JobTracker(living(job_1=20.0), policy=PollPolicy(wait=wait_learned(history))) as tracker:
        waits = [tracker.watch(REF) for _ in range(3)]
        for wait in waits:
            await wait
    assert len(history) == 1
    assert [latest for _, latest in history] == [clock()]


@in_memory
async def test_learning_may_begin_later() -> None:
    """A tracker that was told to learn does so from then on, unless its policy has a wait strategy of its own."""
    history = History()
    async with JobTracker(living(job_1=20.0)) as tracker:
        wait = tracker.watch(REF)
        assert tracker.learn_from(history)
        assert not tracker.learn_from(History())
        await wait
        assert tracker.history_of("docs") is None
        for _ in range(19):
            history.add(1, 2)
        assert tracker.history_of("docs") is history


class _FailsToLearn(tenacity.wait_fixed):
    def learn(self, *_duration: object) -> Iterable[HistoryDropped]:
        raise LookupError("mine")

    def start(self, *_wait: object) -> None:
        raise LookupError("mine")

    def leave(self, *_wait: object) -> None:
        raise LookupError("mine")


@in_memory
async def test_strategy_that_fails_to_learn(caplog: pytest.LogCaptureFixture) -> None:
    """Waits end as they would even if the strategy raises whenever it is told of a duration; its errors are logged."""
    policy = PollPolicy(wait=_FailsToLearn(1))
    for waiters in (1, 2):
        get_job = Polled("active", "completed")
        async with JobTracker(get_job, policy=policy) as tracker:
            waits = [tracker.watch(REF, timeout=60) for _ in range(waiters)]
            await asyncio.wait(waits)
            assert [wait.result().status for wait in waits] == ["completed"] * waiters
            get_job.steps = ["active"]
            waits = [tracker.watch(REF, timeout=5) for _ in range(waiters)]
            await asyncio.wait(waits)
            assert all(isinstance(wait.exception(), WaitTimeoutError) for wait in waits)
            waits = [tracker.watch(REF) for _ in range(waiters)]
            await asyncio.sleep(3)
            for wait in waits:
                wait.cancel()
            assert all(wait.cancelled() for wait in waits)
            assert (tracker.stats().jobs, tracker.stats().oldest_unobserved) == (0, 0.0)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        f"policy.wait.{method} raised LookupError" for method in ("start", "learn", "leave")
    ] * 2
    job = await wait_for_job(REF, get_job=Polled("active", "completed"), policy=policy)
    assert job.status == "completed"


class _LearnsToANumber(tenacity.wait_incrementing):  # its `start` is a number
    def learn(self, *_duration: object) -> Any:
        return 1


class _ReturnsNumbers(tenacity.wait_fixed):
    def learn(self, *_duration: object) -> None:
        """Learn nothing."""

    def start(self, *_wait: object) -> int:
        return 7

    def leave(self, *_wait: object) -> int:
        return 7


@in_memory
async def test_strategy_whose_other_methods_return_something(caplog: pytest.LogCaptureFixture) -> None:
    """What `start` and `leave` return means nothing."""
    async with JobTracker(Polled("active", "completed"), policy=PollPolicy(wait=_ReturnsNumbers(1))) as tracker:
        assert (await tracker.wait_for_job(REF)).status == "completed"
        tracker.watch(REF).cancel()
    assert not caplog.records


class _FailsInItsGenerator(tenacity.wait_fixed):
    def learn(self, *_duration: object) -> Iterable[HistoryDropped]:
        yield HistoryDropped("docs", None, 20)
        raise LookupError("mine")


@in_memory
@pytest.mark.parametrize("wait", [_LearnsToANumber(1), _FailsInItsGenerator(1)])
async def test_strategy_that_returns_no_events(wait: tenacity.wait.wait_base, caplog: pytest.LogCaptureFixture) -> None:
    """What `learn` returns ends no wait either, even if it can't be iterated over."""
    get_job = Polled("active", "completed")
    policy = PollPolicy(wait=wait)
    async with JobTracker(get_job, policy=policy) as tracker:
        assert (await tracker.wait_for_job(REF)).status == "completed"
        get_job.steps = ["active"]
        with pytest.raises(WaitTimeoutError):
            await tracker.wait_for_job(REF, timeout=5)
    assert (await wait_for_job(REF, get_job=Polled("active", "completed"), policy=policy)).status == "completed"
    assert {record.getMessage().partition(" raised")[0] for record in caplog.records} == {"policy.wait.learn"}


class _DropsAtEachEnd(tenacity.wait_fixed):
    def learn(self, project_id: str, _model: str | None, _earliest: float, _latest: float) -> Iterable[HistoryDropped]:
        return [HistoryDropped(project_id, None, 20)]


@in_memory
@pytest.mark.parametrize("waiters", [1, 2])
async def test_hook_that_ends_the_wait_whose_duration_is_learned(
    caplog: pytest.LogCaptureFixture, waiters: int
) -> None:
    """A hook that is told what a job's end has taught may cancel the waits for that job, which are over then."""

    def on_event(event: Any) -> None:
        if isinstance(event, HistoryDropped):
            for wait in waits:
                wait.cancel()

    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=PollPolicy(wait=_DropsAtEachEnd(1)), hooks=[on_event]) as tracker:
        waits = [tracker.watch(REF) for _ in range(waiters)]
        await asyncio.wait(waits, timeout=60)
        assert all(wait.cancelled() for wait in waits)
        assert tracker.stats().jobs == 0
        assert (await tracker.wait_for_job(REF)).status == "completed"
    assert not caplog.records


@in_memory
async def test_hook_that_waits_again_for_the_job_whose_duration_is_learned() -> None:
    """A wait that a hook begins when a job's end has taught something reads the job again, and sees its last change."""
    waits: list[Any] = []
    seen: list[str] = []

    def on_event(event: Any) -> None:
        if isinstance(event, HistoryDropped) and not waits:
            waits.append(
                tracker.watch(AgentJob("job_1", "docs", "active"), on_update=lambda job: seen.append(job.status))
            )

    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=PollPolicy(wait=_DropsAtEachEnd(1)), hooks=[on_event]) as tracker:
        await tracker.wait_for_job(REF, timeout=60)
        assert (await waits[0]).status == "completed"
    assert seen == ["active", "completed"]
    assert len(get_job.asked) == 3

import pytest
import tenacity

from agentjobs_async import History, JobTracker, PollPolicy, WaitTimeoutError, wait_for_job, wait_learned
from tests.polled import REF, Polled, assert_nothing_left, clock, ended, in_memory, living


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
    assert len(history) == 1


class _FailsToLearn(tenacity.wait_fixed):
    def learn(self, *_duration: object) -> None:
        raise LookupError("mine")


@in_memory
@pytest.mark.parametrize("waiters", [1, 2])
async def test_strategy_that_fails_to_learn(caplog: pytest.LogCaptureFixture, waiters: int) -> None:
    """Waits end as they would even if the strategy raises whenever it is told of a duration; its errors are logged."""
    get_job, policy = Polled("active", "completed"), PollPolicy(wait=_FailsToLearn(1))
    async with JobTracker(get_job, policy=policy) as tracker:
        found = await ended(*(tracker.watch(REF, timeout=60) for _ in range(waiters)))
        assert [job.status for job in found] == ["completed"] * waiters
        get_job.steps = ["active"]
        found = await ended(*(tracker.watch(REF, timeout=5) for _ in range(waiters)))
        assert [type(error) for error in found] == [WaitTimeoutError] * waiters
        assert_nothing_left(tracker)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "policy.wait.learn raised LookupError"
    ]
    assert (await wait_for_job(REF, get_job=Polled("active", "completed"), policy=policy)).status == "completed"

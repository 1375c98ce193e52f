import pytest

from agentjobs_async import History, JobTracker, PollPolicy, wait_learned
from tests.polled import REF, clock, living


@pytest.mark.looptime
async def test_shared_job_counts_once() -> None:
    """A job that several callers wait for has one duration: from the start of the oldest wait."""
    history = History()
    async with JobTracker(living(job_1=20.0), policy=PollPolicy(wait=wait_learned(history))) as tracker:
        waits = [tracker.watch(REF) for _ in range(3)]
        for wait in waits:
            await wait
    assert len(history) == 1
    assert [latest for _, latest in history] == [clock()]


@pytest.mark.looptime
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

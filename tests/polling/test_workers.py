"""The slots of polls in flight: who has one, for how long, and what happens to a poll that is cut."""

import asyncio

import pytest

from agentjobs_async import JobRef, JobTracker, PollBudget, ServerError, WaitTimeoutError
from tests.polled import REF, Polled, ended, every, in_memory, never, refs, response, stand_still, swallows

pytestmark = in_memory


async def test_blocked_job_uses_no_slow_slot() -> None:
    """A job whose cut poll has not left holds up no other slow job, though only one slot is for slow ones."""
    get_job = Polled(jobs={"job_0": [swallows], "job_1": [never, "active"]})
    async with JobTracker(get_job, policy=every(5), budget=PollBudget(in_flight=2)) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(10)]
        await asyncio.sleep(95)
        assert len(get_job.at("job_1")) >= 10
        assert (tracker.stats().in_flight, len(get_job.at("job_0"))) == (0, 1)
        for wait in waits:
            wait.cancel()
        await asyncio.sleep(10)


async def test_blocked_job_counts_no_poll() -> None:
    """A wait that joins while an earlier poll has not left, and ends before it has, made none."""
    async with JobTracker(Polled(swallows), policy=every(5)) as tracker:
        tracker.watch(REF).cancel()
        left = tracker.watch(REF)
        await asyncio.sleep(1)
        left.cancel()
        first = tracker.watch(REF, timeout=None)
        await asyncio.sleep(1)
        (error,) = await ended(tracker.watch(REF, timeout=2))
        assert isinstance(error, WaitTimeoutError)
        assert (error.polls, error.last_error) == (0, None)
        first.cancel()
        await asyncio.sleep(100)


@pytest.mark.parametrize("healthy", [1, 3])
async def test_polls_that_fail_at_once(healthy: int) -> None:
    """Where slots set the pace, polls that fail at once are no more often than those before, however few these were."""

    async def state(_ref: JobRef) -> object:
        if len(get_job.asked) > healthy:
            return response(ServerError, 500)
        await asyncio.sleep(1)
        return "active"

    get_job = Polled(state)
    async with JobTracker(get_job, policy=every(5), budget=PollBudget(in_flight=1)) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(50)]
        await asyncio.sleep(20.5)
        assert len(get_job.asked) == 21
        for wait in waits:
            wait.cancel()


async def test_polls_that_fail_after_the_loop_stood_still() -> None:
    """The time in which the loop stood still is not how long a poll takes: those that fail then keep no slot for it."""

    async def state(_ref: JobRef) -> object:
        if 15 < len(get_job.asked) <= 25:
            return response(ServerError, 500)
        await asyncio.sleep(0 if len(get_job.asked) > 25 else 4)
        return "active"

    get_job = Polled(state)
    async with JobTracker(get_job, policy=every(5), budget=PollBudget(in_flight=5)) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(5)]
        await asyncio.sleep(20)
        stand_still(600)
        await asyncio.sleep(60)
        assert len(get_job.within(620, 680)) >= 5 * 60 / 10
        for wait in waits:
            wait.cancel()

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import tenacity

from agentjobs_async import AgentJob, Estimate, History, JobRef, JobTracker, PollPolicy, wait_learned
from agentjobs_async.learning.estimate import estimate_job
from agentjobs_async.policy import DEFAULT_WAIT
from agentjobs_async.testing import Emulator, JobScript
from tests.learning.draws import history_of, two_humps
from tests.polled import clock, in_memory, living


def of_two_humps() -> History:
    dice = random.Random(1)  # noqa: S311 - no secret
    return history_of([two_humps(dice) for _ in range(200)])


async def test_session_estimates_the_time_left() -> None:
    """A session says how long a job has left, by its age; the job need not be waited for."""
    policy = PollPolicy(wait=wait_learned(of_two_humps()))
    async with Emulator(script=JobScript(duration=1_000)) as emulator:
        async with emulator.session(project_id="docs", policy=policy) as session:
            job = await session.create_job("Document the v2 endpoints")
            by_job, by_id = await session.estimate(job), await session.estimate(job.id)
    assert by_job is not None
    assert by_id is not None
    assert by_job.p90 == pytest.approx(by_id.p90, rel=0.05)
    assert 400 < by_job.p90 < 800


@in_memory
async def test_age_counts_from_the_wait() -> None:
    """Without a date of its creation, a job is as old as the wait for it."""
    policy = PollPolicy(wait=wait_learned(of_two_humps()))
    async with JobTracker(living(job_1=1_000.0), policy=policy) as tracker:
        wait = tracker.watch(JobRef("docs", "job_1"))
        await asyncio.sleep(100)
        found = await tracker.estimate(JobRef("docs", "job_1"))
        wait.cancel()
        unknown = await tracker.estimate(AgentJob("job_2", "docs", "active"))
    assert found is not None
    assert found.p50 == pytest.approx(380, rel=0.1)
    assert unknown is None


@in_memory
async def test_ended_job_has_no_time_left() -> None:
    """A job that has ended has 0 s left."""
    policy = PollPolicy(wait=wait_learned(of_two_humps()))
    async with JobTracker(living(job_1=0.0), policy=policy) as tracker:
        assert await tracker.estimate(JobRef("docs", "job_1")) == Estimate(0.0, 0.0)


class OwnWait(tenacity.wait_fixed):
    """A strategy of a user's that notes durations."""

    def __init__(self) -> None:
        super().__init__(2)
        self.learned: list[tuple[object, ...]] = []

    def learn(self, *duration: object) -> None:
        self.learned.append(duration)


class OwnHistory(OwnWait):
    """The same, which knows how long jobs take."""

    def history_of(self, project_id: str, model: str | None) -> History | None:
        return history_of([1_000.0]) if (project_id, model) == ("docs", None) else None


@in_memory
async def test_without_durations_there_is_no_estimate() -> None:
    """Waits that know fewer than 20 durations estimate nothing; those that do not learn read nothing for it either."""
    for wait in (DEFAULT_WAIT, OwnWait(), wait_learned(history_of([5.0] * 19))):
        get_job = living(job_1=9.0)
        async with JobTracker(get_job, policy=PollPolicy(wait=wait)) as tracker:
            assert await tracker.estimate(JobRef("docs", "job_1")) is None
            assert bool(get_job.asked) is isinstance(wait, wait_learned)


@in_memory
@pytest.mark.parametrize("add", [lambda own: own, lambda own: own + tenacity.wait_none()])
async def test_own_strategies_learn(add: Callable[[OwnWait], Any]) -> None:
    """A user's own strategy is told each duration, alone or in a sum; it gives estimates if it has a `history_of`."""
    active = AgentJob("job_2", "docs", "active", created_at=datetime.now(UTC))
    for own, p90 in ((OwnWait(), None), (OwnHistory(), pytest.approx(1_000, rel=0.05))):
        began = clock()
        async with JobTracker(living(job_1=began + 3.0), policy=PollPolicy(wait=add(own))) as tracker:
            await tracker.wait_for_job(JobRef("docs", "job_1"))
            found = await tracker.estimate(active)
        assert own.learned == [("docs", None, 2.0, clock() - began)]
        assert (None if found is None else found.p90) == p90


def test_nothing_is_known_beyond_the_longest_duration() -> None:
    """An estimate goes up to the longest known duration; for a job that may take longer there is none."""
    history, job = history_of([20.0] * 30), AgentJob("job_1", "docs", "active")
    assert history.quantile(0.9) <= 20
    for age in (20.5, 30.0):
        assert estimate_job(history, job, age) is None


def test_estimate_in_words() -> None:
    """An estimate says in words when the job will end; less than a second is only known at its end."""
    assert str(Estimate(120.0, 300.0)) == "about 2 min, 9 of 10 within 5 min"
    assert str(Estimate(0.0, 40.0)) == "about 1 s, 9 of 10 within 40 s"
    assert str(Estimate(0.0, 0.0)) == "0 s"


@pytest.mark.parametrize("draw", [two_humps, lambda dice: dice.lognormvariate(5, 0.8)])
@pytest.mark.parametrize("age", [0.0, 60.0])
def test_estimates_are_calibrated(draw: Callable[[random.Random], float], age: float) -> None:
    """Of jobs that the history has not seen, 85 to 95 % end within the p90 that 50 earlier ones give, on average."""
    dice = random.Random(5)  # noqa: S311 - no secret
    within = []
    for _ in range(20):
        longest = age + history_of([draw(dice) for _ in range(50)]).quantile(0.9, age)
        within += [job <= longest for job in (draw(dice) for _ in range(300)) if job > age]
    assert 0.85 <= sum(within) / len(within) <= 0.95

import asyncio
import pickle
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
import tenacity

from agentjobs_async import (
    AgentJob,
    History,
    InvalidInputError,
    JobRef,
    JobTracker,
    PollPolicy,
    TransportError,
    WaitTimeoutError,
    wait_for_job,
    wait_learned,
)
from agentjobs_async.learning.gaps import default_gap
from agentjobs_async.learning.strategy import Histories
from agentjobs_async.policy import LearningWait
from tests.learning.draws import ACTIVE, history_of, poll_at, two_humps
from tests.polled import REF, Polled, clock, ended, gaps, in_memory, living, refs
from tests.rows import failures


def of_two_humps(count: int = 200) -> History:
    dice = random.Random(1)  # noqa: S311 - no secret
    return history_of([two_humps(dice) for _ in range(count)])


def is_default(wait: wait_learned, job: AgentJob = ACTIVE) -> bool:
    """Whether the wait leaves the default's gap between two polls where a learned one is far longer."""
    return 0.9 * default_gap(120) <= wait(poll_at(120, job)) <= 1.1 * default_gap(120)


def created(seconds: float, status: str = "active") -> AgentJob:
    """Return a job that was created so many seconds ago."""
    return AgentJob("job_1", "docs", status, created_at=datetime.now(UTC) - timedelta(seconds=seconds))


def test_waits_as_the_default_before_it_knows_enough() -> None:
    """With fewer than 20 durations the default waits; with the twentieth, a learned gap."""
    history = of_two_humps(19)
    wait = wait_learned(history)
    assert is_default(wait)
    history.add(19, 20)
    assert not is_default(wait)


@pytest.mark.parametrize("age", [20, 120])
def test_never_waits_shorter_after_a_failed_poll(age: int) -> None:
    """A failure never makes the client faster: neither than the default nor than the answers before it did."""
    wait = wait_learned(of_two_humps())
    healthy = max(wait(poll_at(age)) for _ in range(50))
    assert wait(poll_at(age, error=TransportError("reset"))) >= max(0.8 * healthy, 0.9 * default_gap(age))


def test_a_failed_poll_is_paced_by_its_own_kind() -> None:
    """After a failed poll, the history of the job's own kind counts, whichever was polled before."""
    wait = wait_learned({("docs", None): of_two_humps(), ("web", None): history_of([120.0] * 50)})
    assert wait(poll_at(120, AgentJob("job_2", "web", "active"))) < 0.6 * default_gap(120)
    later = 121  # two tables are not made at once
    assert wait(poll_at(later, error=TransportError("reset"))) > 1.7 * default_gap(later)


def test_waits_by_project_and_model() -> None:
    """A dict of histories serves each kind of jobs with its own; a model without one with that of the project."""
    wait = wait_learned({("docs", None): of_two_humps(), ("docs", "fast"): history_of([120.0] * 50)})
    assert wait(poll_at(120, AgentJob("job_1", "docs", "active"))) > 1.7 * default_gap(120)
    fast = AgentJob("job_1", "docs", "active", model="fast")
    assert is_default(wait, fast), "two tables are not made in one iteration"
    assert wait(poll_at(120.5, fast)) < 0.6 * default_gap(120)
    assert wait(poll_at(120, AgentJob("job_1", "docs", "active", model="slow"))) > 1.7 * default_gap(120)
    assert is_default(wait, AgentJob("job_1", "web", "active"))


def test_a_model_with_few_durations() -> None:
    """A model of which fewer than 20 durations are known is served by the project's, to polls and estimates alike."""
    of_project, of_model = of_two_humps(), history_of([120.0] * 19)
    wait = wait_learned({("docs", None): of_project, ("docs", "fast"): of_model})
    fast = AgentJob("job_1", "docs", "active", model="fast")
    assert wait(poll_at(120, fast)) > 1.7 * default_gap(120)
    assert wait.history_of("docs", "fast") is of_project
    wait.learn("docs", "fast", 119.0, 120.0)
    assert wait(poll_at(121, fast)) < 0.6 * default_gap(121)
    assert wait.history_of("docs", "fast") is of_model


def tenacitys(age: float, result: object) -> tenacity.RetryCallState:
    """Return what tenacity itself calls a strategy with."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.start_time, state.outcome_timestamp = 0.0, age
    state.outcome = tenacity.Future.construct(1, result, has_exception=False)
    return state


def test_serves_tenacity_itself() -> None:
    """Outside of this package it serves as any wait strategy of tenacity; a job says of which kind and age it is."""
    assert 0.9 * default_gap(120) <= wait_learned(of_two_humps())(tenacitys(120, "a result")) <= 2 * default_gap(120)
    of_kinds = wait_learned({("docs", None): of_two_humps()})
    assert of_kinds(tenacitys(120, ACTIVE)) > 1.7 * default_gap(120)
    assert of_kinds(tenacitys(20, created(120))) > 1.7 * default_gap(120)


@in_memory
@pytest.mark.parametrize("polls_per_job", [None, 5])
@pytest.mark.parametrize("one_for_all", [True, False])
async def test_an_outage_causes_no_more_polls(polls_per_job: float | None, *, one_for_all: bool) -> None:
    """Jobs that take long are polled rarely; a server that fails from the first poll on is polled no more often."""
    polls = []
    for answer in (AgentJob("job", "docs", "active"), TransportError("reset")):
        made: list[JobRef] = []

        async def get_job(ref: JobRef, answer: AgentJob | Exception = answer, made: list[JobRef] = made) -> AgentJob:
            made.append(ref)
            if isinstance(answer, Exception):
                raise answer
            return AgentJob(ref.job_id, ref.project_id, answer.status)

        history = history_of([600.0] * 50)
        wait = wait_learned(history if one_for_all else {("docs", None): history}, polls_per_job=polls_per_job)
        async with JobTracker(get_job, policy=PollPolicy(wait=wait)) as tracker:
            jobs = [tracker.watch(JobRef("docs", f"job_{number}"), timeout=None) for number in range(50)]
            await asyncio.sleep(300)
            for job in jobs:
                job.cancel()
        polls.append(len(made))
    assert polls[1] <= 1.1 * polls[0]


@in_memory
async def test_first_batch_at_once_causes_no_more_polls() -> None:
    """Jobs that begin together, the first ones of all, end from the short to the long: none is polled more for that."""
    polls = []
    for policy in (PollPolicy(), PollPolicy(wait=wait_learned())):
        random.seed(1)
        get_job = living(**{ref.job_id: clock() + random.lognormvariate(5, 0.6) for ref in refs(200)})
        async with JobTracker(get_job, policy=policy) as tracker:
            await ended(*(tracker.watch(ref) for ref in refs(200)))
        polls.append(len(get_job.asked))
    assert polls[1] <= 1.05 * polls[0]


@in_memory
async def test_waits_feed_their_strategy() -> None:
    """A tracker, and a wait without one, add a job's duration: from when it was last seen active until its end."""
    history = History()
    policy = PollPolicy(wait=wait_learned(history))
    async with JobTracker(living(job_1=20.0), policy=policy) as tracker:
        await tracker.wait_for_job(REF)
    began = clock()
    await wait_for_job(REF, get_job=living(job_1=began + 20.0), policy=policy)
    tracked, free = history
    assert tracked[0] < 20 <= tracked[1] == began
    assert free[0] < 20 <= free[1] == pytest.approx(clock() - began)


@in_memory
@pytest.mark.parametrize(
    "add",
    [
        lambda learned: learned + tenacity.wait_random(0, 0.1),
        lambda learned: tenacity.wait_chain(tenacity.wait_fixed(1), learned),
        lambda learned: tenacity.wait_chain(tenacity.wait_fixed(1), learned + tenacity.wait_random(0, 0.1)),
    ],
)
async def test_learns_within_a_sum(add: Callable[[wait_learned], Any]) -> None:
    """As a part of a sum or a chain of strategies it learns, and gives estimates, as it does alone."""
    history = of_two_humps(20)
    policy = PollPolicy(wait=add(wait_learned(history)))
    await wait_for_job(REF, get_job=living(job_1=20.0), policy=policy)
    async with JobTracker(living(job_1=clock() + 20.0), policy=policy) as tracker:
        await tracker.wait_for_job(REF)
        assert await tracker.estimate(created(5)) is not None
    assert history.added == 22


@in_memory
async def test_keeps_a_history_for_each_kind() -> None:
    """Without a history, it keeps one for each project and model in memory, and one for each project."""
    wait = wait_learned()

    async def get_job(ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, ref.project_id, "completed", model="fast")

    async with JobTracker(get_job, policy=PollPolicy(wait=wait)) as tracker:
        await tracker.wait_for_job(REF)
        await tracker.wait_for_job(JobRef("web", "job_1"))
    assert set(wait.histories) == {(project, model) for project in ("docs", "web") for model in (None, "fast")}


@in_memory
@pytest.mark.parametrize("waiters", [0, 1, 2])
async def test_timed_out_wait_is_a_lower_bound(waiters: int) -> None:
    """A wait that timed out, with a tracker or without, adds once that the job takes longer than it was seen active."""
    history, get_job = History(), living(job_1=1_000.0)
    policy = PollPolicy(wait=wait_learned(history))
    async with JobTracker(get_job, policy=policy) as tracker:
        waits = [tracker.watch(REF, timeout=60) for _ in range(waiters)]
        if not waits:
            waits = [asyncio.ensure_future(wait_for_job(REF, get_job=get_job, policy=policy, timeout=60))]
        assert {type(error) for error in await ended(*waits)} == {WaitTimeoutError}
    ((earliest, latest),) = history
    assert 50 < earliest < 60
    assert latest == inf


@in_memory
@pytest.mark.parametrize("tracked", [True, False])
async def test_job_that_is_waited_for_later(*, tracked: bool) -> None:
    """However late the wait for a job begins, the job is polled and learned by the time since its creation."""
    history = of_two_humps()
    policy, get_job = PollPolicy(wait=wait_learned(history)), Polled(created(100), created(100), created(100, "failed"))
    async with JobTracker(get_job, policy=policy) as tracker:
        await (tracker.wait_for_job(REF) if tracked else wait_for_job(REF, get_job=get_job, policy=policy))
    assert min(gaps(get_job.times)) > 1.7 * default_gap(100)
    assert list(history)[-1] == pytest.approx((100 + get_job.times[1], 100 + clock()), abs=0.1)


@in_memory
async def test_job_that_had_ended_before() -> None:
    """A job that had ended when its wait began is learned only if that was soon after its creation, by any clock."""
    history = History()
    policy = PollPolicy(wait=wait_learned(history))
    for seconds in (11, 3600):
        async with JobTracker(Polled(created(seconds, "completed")), policy=policy) as tracker:
            await tracker.wait_for_job(REF)
    assert list(history) == [pytest.approx((0, 11), abs=0.1)]


def test_follows_a_change() -> None:
    """However wrong a history is, it is that of the last 200 jobs: once as many have ended, the waits follow them."""
    history = of_two_humps()
    wait = wait_learned(history)
    assert wait(poll_at(120)) > 1.7 * default_gap(120)
    for _ in range(200):
        wait.learn("docs", None, 119.0, 120.0)
    assert len(history) == 200
    assert wait(poll_at(121)) < 0.6 * default_gap(121)


def test_kinds_are_bounded() -> None:
    """However many models the server names, and however long their names, memory is bounded; the latest kinds stay."""
    wait = wait_learned()
    for number in range(1_000):
        wait.learn("docs", f"model {number}", 1.0, 2.0)
    wait.learn("docs", "x" * 10_000, 1.0, 2.0)
    assert len(wait.histories) == 256
    assert ("docs", "model 999") in wait.histories
    assert ("docs", None) in wait.histories
    assert max(len(model or "") for _, model in wait.histories) < 20


def test_refuses_what_makes_no_sense() -> None:
    """A history that is none, and a number of polls below one, are refused at once."""

    def check(words: str, **settings: Any) -> None:
        with pytest.raises(InvalidInputError, match=words):
            wait_learned(**settings)

    histories: list[Any] = ["durations.json", [1.0], {"docs": History()}, {("docs", None): [1.0]}]
    assert failures(lambda value: check("history must be a History", history=value), *histories) == {}
    check("a dict by .project id, model or None.: see 'docs'$", history={"docs": History()})
    numbers = (0, 0.5, -1, inf, "many", True)
    assert failures(lambda value: check("polls_per_job", polls_per_job=value), *numbers) == {}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    """What was pickled, by any protocol, waits by the same durations at once, and learns on."""
    of_kinds = wait_learned({("docs", None): of_two_humps()})
    of_kinds(poll_at(120))  # its table is made at a loop time, which says nothing in another process
    for wait in (of_kinds, wait_learned(of_two_humps()), wait_learned()):
        copy = pickle.loads(pickle.dumps(wait, protocol))  # noqa: S301 - our own object
        assert is_default(copy) is is_default(wait)
        assert copy.histories == wait.histories
        copy.learn("docs", "model", 1.0, 2.0)
        assert ("docs", "model") not in wait.histories
        assert ("docs", "model") in copy.histories or not copy.histories  # it has one history for all


def test_given_dict_is_filled() -> None:
    """New durations go into the dict that was given, so that its caller can store it."""
    histories: Histories = {}
    wait: LearningWait = wait_learned(histories)
    wait.learn("docs", None, 1.0, 2.0)
    assert [len(history) for history in histories.values()] == [1]

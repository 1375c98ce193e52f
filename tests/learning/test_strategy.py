import asyncio
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from operator import itemgetter
from typing import Any

import pytest
import tenacity
from tenacity.wait import wait_base

from agentjobs_async import (
    AgentJob,
    Event,
    History,
    HistoryDropped,
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
from tests.learning.draws import OnePoll, history_of, poll_at, two_humps
from tests.polled import REF, clock, in_memory, living
from tests.rows import failures


def of_two_humps(count: int = 200) -> History:
    dice = random.Random(1)  # noqa: S311 - no secret
    return history_of([two_humps(dice) for _ in range(count)])


def is_default(wait: wait_learned, answer: object = None) -> bool:
    """Whether the wait leaves the default's gap between two polls where a learned one is far longer."""
    return 0.9 * default_gap(120) <= wait(poll_at(120, answer)) <= 1.1 * default_gap(120)


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
    assert wait(poll_at(age, TransportError("reset"))) >= max(0.8 * healthy, 0.9 * default_gap(age))


def test_a_failed_poll_is_paced_by_its_own_kind() -> None:
    """After a failed poll, the history of the job's own kind counts, whichever was polled before."""
    wait = wait_learned({("docs", None): of_two_humps(), ("web", None): history_of([120.0] * 50)})
    failed = poll_at(120, TransportError("reset"))
    failed.job = AgentJob("job_1", "docs", "active")
    assert wait(poll_at(120, AgentJob("job_2", "web", "active"))) < 0.6 * default_gap(120)
    assert wait(failed) > 1.7 * default_gap(120)


def test_waits_by_project_and_model() -> None:
    """A dict of histories serves each kind of jobs with its own; a model without one with that of the project."""
    wait = wait_learned({("docs", None): of_two_humps(), ("docs", "fast"): history_of([120.0] * 50)})
    assert wait(poll_at(120, AgentJob("job_1", "docs", "active"))) > 1.7 * default_gap(120)
    assert wait(poll_at(120, AgentJob("job_1", "docs", "active", model="fast"))) < 0.6 * default_gap(120)
    assert wait(poll_at(120, AgentJob("job_1", "docs", "active", model="slow"))) > 1.7 * default_gap(120)
    assert is_default(wait, AgentJob("job_1", "web", "active"))


def test_serves_tenacity_itself() -> None:
    """Outside of this package it serves as any wait strategy of tenacity."""
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.start_time, state.outcome_timestamp = 0.0, 120.0
    state.outcome = tenacity.Future.construct(1, "a result", has_exception=False)
    assert 0.9 * default_gap(120) <= wait_learned(of_two_humps())(state) <= 2 * default_gap(120)


@in_memory
@pytest.mark.parametrize("polls_per_job", [None, 5])
async def test_an_outage_causes_no_more_polls(polls_per_job: float | None) -> None:
    """Jobs that take long are polled rarely; while the server fails, they are polled no more often than that."""
    polls = []
    for answer in (AgentJob("job", "docs", "active"), TransportError("reset")):
        made: list[JobRef] = []

        async def get_job(ref: JobRef, answer: AgentJob | Exception = answer, made: list[JobRef] = made) -> AgentJob:
            made.append(ref)
            if isinstance(answer, Exception):
                raise answer
            return AgentJob(ref.job_id, ref.project_id, answer.status)

        wait = wait_learned(history_of([600.0] * 50), polls_per_job=polls_per_job)
        async with JobTracker(get_job, policy=PollPolicy(wait=wait)) as tracker:
            jobs = [tracker.watch(JobRef("docs", f"job_{number}"), timeout=None) for number in range(50)]
            await asyncio.sleep(300)
            for job in jobs:
                job.cancel()
        polls.append(len(made))
    assert polls[1] <= 1.1 * polls[0]


async def waits_until_ended(tracker: JobTracker, seconds: dict[str, float]) -> None:
    for job_id in seconds:
        await tracker.wait_for_job(JobRef("docs", job_id))


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
async def test_timed_out_wait_is_a_lower_bound() -> None:
    """A wait that timed out adds that the job takes longer than it was seen active."""
    history = History()
    async with JobTracker(living(job_1=1_000.0), policy=PollPolicy(wait=wait_learned(history))) as tracker:
        with pytest.raises(WaitTimeoutError):
            await tracker.wait_for_job(REF, timeout=60)
    ((earliest, latest),) = history
    assert 50 < earliest < 60
    assert latest == inf


@in_memory
async def test_job_of_long_ago_is_left_out() -> None:
    """A job that was created long before the wait began says nothing about durations."""
    history = History()
    created = datetime.now(UTC) - timedelta(hours=1)

    async def get_job(ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, ref.project_id, "completed", created_at=created)

    async with JobTracker(get_job, policy=PollPolicy(wait=wait_learned(history))) as tracker:
        await tracker.wait_for_job(REF)
    assert len(history) == 0


@in_memory
async def test_notices_that_jobs_have_changed() -> None:
    """When the durations change, the history is dropped, a hook is told, and the default waits again."""
    random.seed(5)
    history, events = history_of([random.lognormvariate(3, 0.3) for _ in range(50)]), list[Event]()
    wait = wait_learned(history)
    seconds: dict[str, float] = {}
    async with JobTracker(living_for(seconds), policy=PollPolicy(wait=wait), hooks=[events.append]) as tracker:
        for number in range(40):
            seconds[f"job_{number}"] = clock() + random.lognormvariate(5, 0.3)
            await tracker.wait_for_job(JobRef("docs", f"job_{number}"))
            if len(history) < 20:
                break
    (dropped,) = [event for event in events if isinstance(event, HistoryDropped)]
    assert (dropped.project_id, dropped.model, len(history)) == (None, None, 0)
    assert dropped.durations > 50
    assert is_default(wait)


def run_at_once(wait: wait_learned, durations: list[float], *, begun: bool = True) -> list[HistoryDropped]:
    """End jobs that began together; without `begun`, the strategy is not told of their starts."""
    jobs = [OnePoll() for _ in durations]
    for job in jobs if begun else ():
        wait.start("docs", job)
    events = []
    for seconds, job in sorted(zip(durations, jobs, strict=True), key=itemgetter(0)):
        events += wait.learn("docs", None, seconds, seconds, job if begun else None)
    return events


def lognormal(count: int, seed: int = 6) -> list[float]:
    dice = random.Random(seed)  # noqa: S311 - no secret
    return [dice.lognormvariate(5, 0.6) for _ in range(count)]


def test_jobs_at_the_same_time_are_no_change() -> None:
    """Jobs that run at the same time end in the order of their durations: to the test that is no change."""
    random.seed(6)
    known, durations = lognormal(550)[:50], lognormal(550)[50:]
    assert run_at_once(wait_learned({("docs", None): history_of(known)}), durations, begun=False)
    wait = wait_learned({("docs", None): history_of(known)})
    assert run_at_once(wait, durations) == []
    assert len(wait.histories["docs", None]) == 200


def test_a_change_is_noticed_while_the_first_jobs_go_on() -> None:
    """Of jobs that began together and take longer than nearly all before, the first need not end to be noticed."""
    random.seed(6)
    wait = wait_learned({("docs", None): history_of(lognormal(50))})
    jobs = [OnePoll() for _ in range(40)]
    for job in jobs:
        wait.start("docs", job)
        job.seen, job.job = 10_000.0, AgentJob("job_1", "docs", "active")
    (dropped,) = wait.learn("docs", None, 10_000.0, 10_001.0, jobs.pop())
    assert dropped == HistoryDropped("docs", None, 51)


def test_after_a_drop_only_new_jobs_count() -> None:
    """Of the jobs that were active when a history was dropped, only the long ones are left: none of them counts."""
    random.seed(6)
    wait = wait_learned({("docs", None): history_of(lognormal(50))})
    active = OnePoll()
    wait.start("docs", active)
    wait._learners["docs", None].drop(wait._starts.count)
    wait.learn("docs", None, 1.0, 2.0, active)
    assert len(wait._learners["docs", None].drift._sorted) == 0
    wait.learn("docs", None, 1.0, 2.0)
    assert len(wait._learners["docs", None].drift._sorted) == 1


class Recording(wait_base):
    """Waits 5 s, and records what it is told of waits."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:  # noqa: ARG002 - tenacity's signature
        return 5.0

    def start(self, project_id: str, wait: Any) -> None:
        assert project_id == "docs"
        self.told.append(("start", wait))

    def learn(self, *told: Any) -> list[HistoryDropped]:
        self.told.append(("learn", told[-1]))
        return []

    def leave(self, wait: Any) -> None:
        self.told.append(("leave", wait))


@in_memory
async def test_tracker_tells_of_starts_and_ends() -> None:
    """The strategy is told of each wait that begins, ends with its job, times out, is cancelled, fails or is closed."""
    strategy, created = Recording(), datetime.now(UTC) - timedelta(hours=1)

    async def get_job(ref: JobRef) -> AgentJob:
        if ref.job_id == "refused":
            raise ValueError("refused")
        ended = ref.job_id in ("ended", "old") and clock() > 1
        return AgentJob(
            ref.job_id, "docs", "completed" if ended else "active", created_at=created if ref.job_id == "old" else None
        )

    names = ["ended", "old", "late", "cancelled", "refused", "closed"]
    async with JobTracker(get_job, policy=PollPolicy(wait=strategy)) as tracker:
        jobs = [tracker.watch(JobRef("docs", name), timeout=60 if name == "late" else None) for name in names]
        waits = {wait: wait.ref.job_id for _, wait in strategy.told}
        assert [("start", name) for name in names] == [(what, waits[wait]) for what, wait in strategy.told]
        await asyncio.sleep(30)
        jobs[3].cancel()
        await asyncio.sleep(60)
        await asyncio.gather(*jobs[:5], return_exceptions=True)
    told = {name: [what for what, wait in strategy.told if waits[wait] == name] for name in names}
    assert [told[name][1] for name in names] == ["learn", "leave", "learn", "leave", "leave", "leave"]


@in_memory
@pytest.mark.parametrize(("timeout", "told"), [(None, ["start", "learn", "leave"]), (10.0, ["start", "leave"])])
async def test_free_wait_tells_of_its_start_and_end(timeout: float | None, told: list[str]) -> None:  # noqa: ASYNC109 - the wait's
    """A wait without a tracker tells of them, too; to leave after the end is told changes nothing."""
    strategy = Recording()
    with suppress(WaitTimeoutError):
        await wait_for_job(REF, get_job=living(job_1=20.0), policy=PollPolicy(wait=strategy), timeout=timeout)
    assert [what for what, _ in strategy.told] == told


def living_for(seconds: dict[str, float]) -> Any:
    """Return a service whose jobs end at these times; jobs may be added later."""

    async def get_job(ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, "docs", "completed" if clock() >= seconds[ref.job_id] else "active")

    return get_job


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
    numbers = (0, 0.5, -1, inf, "many", True)
    assert failures(lambda value: check("polls_per_job", polls_per_job=value), *numbers) == {}


def test_given_dict_is_filled() -> None:
    """New durations go into the dict that was given, so that its owner can store it."""
    histories: Histories = {}
    wait_learned(histories).learn("docs", None, 1.0, 2.0)
    assert [len(history) for history in histories.values()] == [1]

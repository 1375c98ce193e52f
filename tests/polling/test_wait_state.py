"""What a state knows, what a job with a Retry-After means, when the last poll begins, and what strategies learn.

All else that an answer means is in `test_waits.py`.
"""

import logging

import pytest
import tenacity
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async import History, JobTracker, WaitTimeoutError, wait_for_job, wait_learned
from agentjobs_async._polling.wait_state import Answer, StatusWarnings, WaitState
from agentjobs_async.errors import ServerError
from agentjobs_async.models import AgentJob, Seen
from agentjobs_async.policy import PollPolicy
from tests.past import ACTIVE, NOW, POLICY, again, past
from tests.polled import REF, Polled, assert_nothing_left, clock, ended, in_memory, living
from tests.rows import failures


def test_wish_beside_an_end() -> None:
    """Completed, archived and failed end the wait at once, whatever wish came with them."""
    for status in ("completed", "archived", "failed"):
        job = evolve(ACTIVE, status=status)
        assert past().apply(POLICY, Seen(job, 30.0), NOW) is job


def test_wish_beside_a_job() -> None:
    """An active job with a wish is as good as one without, and the wish a lower bound of the delay, capped."""

    def check(wish: float, due: float) -> None:
        state = again(Seen(ACTIVE, wish), state=past(bad_answers=4, polls=7, seen=NOW - 9))
        assert (state.due, state.not_before) == (NOW + due, NOW + min(wish, 60.0))
        assert (state.job, state.seen, state.shown, state.bad_answers) == (ACTIVE, NOW, 7, 0)

    assert failures(check, (0.0, 5.0), (3.0, 5.0), (20.0, 20.0), (900.0, 60.0)) == {}


@given(st.floats(0, 100), st.floats(0, 1e6), st.floats(0, 100))
def test_never_sooner(delay: float, wish: float, cap: float) -> None:
    """The same strategy paces after an error as after a success: the delay is the larger of its own and the wish."""
    policy = PollPolicy(wait=tenacity.wait_fixed(delay), max_retry_after=cap)
    good = again(Seen(ACTIVE, wish), policy)
    bad = again(ServerError(503, None, wish), policy)
    assert good.due == bad.due == NOW + max(delay, min(wish, cap))


def test_last_poll() -> None:
    """A last poll starts `min(1 s, timeout / 10)` before the deadline, unless the server wishes none."""

    def check(now: float, due: float, not_before: float, timeout: float | None, moved: float) -> None:
        state = WaitState(REF, None, 0.0)
        state.due, state.not_before = due, not_before
        state.move_to_last_poll(timeout, now)
        assert state.due == pytest.approx(moved)

    rows: list[tuple[float | None, ...]] = [
        (0.0, 5.0, 0.0, None, 5.0),  # no deadline
        (0.0, 5.0, 0.0, 100.0, 5.0),  # far from it
        (95.0, 110.0, 95.0, 100.0, 99.0),  # the last poll starts 1 s before it
        (95.0, 99.5, 95.0, 100.0, 99.0),
        (0.0, 5.0, 0.0, 2.0, 1.8),  # of a short wait, a tenth of it
        (98.5, 104.0, 98.5, 100.0, 99.0),
        (99.0, 104.0, 99.0, 100.0, 104.0),  # that was the last one
        (99.5, 104.0, 99.5, 100.0, 104.0),
        (98.9999, 104.0, 98.9999, 100.0, 104.0),  # a clock's rounding makes no second last poll
        (95.0, 110.0, 99.4, 100.0, 99.4),  # what the server does not wish earlier
        (95.0, 155.0, 155.0, 100.0, 155.0),  # or not at all
    ]
    assert failures(check, *rows) == {}


def test_large_document() -> None:
    """Of a job whose document is large, all but that stays for the time until the next poll."""
    job = AgentJob("job", "docs", "active", model="m", raw={"log": "long"})
    compact = again(Seen(job, is_large=True)).job
    assert (compact, compact and compact.raw, job.raw) == (job, {}, {"log": "long"})
    assert again(job).job is job


def test_strategies_that_raise() -> None:
    """What a strategy raises ends the wait; what the answer showed is recorded all the same."""

    def wait(_state: tenacity.RetryCallState) -> float:
        raise LookupError("mine")

    def check(answer: Answer, shown: object) -> None:
        state = past()
        assert isinstance(state.apply(PollPolicy(wait=wait), answer, NOW), LookupError)
        assert shown in (state.job, state.error)

    error = ServerError(503)
    assert failures(check, (Seen(ACTIVE), ACTIVE), (error, error)) == {}


def test_unknown_status(caplog: pytest.LogCaptureFixture) -> None:
    """Each unknown status is warned about once, on one line, with the job's token."""
    warnings = StatusWarnings()
    for status in ("paused\n\x07", "paused\n\x07"):
        warnings.check(AgentJob("job 1", "docs", status))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == r"job docs~.job~201 has the unknown status paused\n\x07: it counts as not ended"


def test_flood_of_statuses(caplog: pytest.LogCaptureFixture) -> None:
    """A server that makes up ever new statuses gets a hundred warnings, and no memory beyond them."""
    warnings = StatusWarnings()
    for number in range(1000):
        warnings.check(AgentJob("job", "docs", f"paused {number}"))
    assert len(caplog.records) == 100


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

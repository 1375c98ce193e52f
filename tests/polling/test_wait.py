"""What the free wait alone has: it runs in its caller's task, without a tracker."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async import (
    AgentJob,
    AuthError,
    InvalidInputError,
    JobRef,
    NotFoundError,
    ProtocolError,
    ServerError,
    TransportError,
    WaitTimeoutError,
    wait_for_job,
)
from agentjobs_async._polling.wait import _Wait
from agentjobs_async.models import JobWithRetryAfter
from tests.polled import ACTIVE, DONE, REF, Polled, changed, every, in_memory, response
from tests.rows import failures_at_once


async def swallows_once(_ref: JobRef) -> str:
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return "active"


async def swallows_and_finds_the_end(ref: JobRef) -> str:
    await swallows_once(ref)
    return "completed"


@in_memory
async def test_swallowed_cut() -> None:
    """A read that swallows its cut at the deadline was answered; an end that it found even then is given."""
    with pytest.raises(WaitTimeoutError) as caught:
        await wait_for_job(REF, get_job=Polled("active", swallows_once), policy=every(2), timeout=5)
    assert caught.value.elapsed == pytest.approx(5)
    assert (caught.value.polls, caught.value.last_job, caught.value.last_error) == (2, ACTIVE, None)
    assert await wait_for_job(REF, get_job=Polled(swallows_and_finds_the_end), timeout=5) == DONE


class MineError(Exception):
    """An exception of the user's own, which can be held weakly."""


async def test_errors_are_freed_with_the_last_reference() -> None:
    """What a get-job callable raised, and a wait passed on, does not stay until the garbage collector runs."""

    async def raising(_ref: JobRef) -> AgentJob:
        raise MineError

    gc.disable()
    try:
        with pytest.raises(MineError) as caught:
            await wait_for_job(REF, get_job=raising)
        error = weakref.ref(caught.value)
        del caught
        assert error() is None
    finally:
        gc.enable()


ANSWERS = [
    *(ACTIVE, changed("m"), AgentJob("job_1", "docs", "reviewing"), DONE),
    *(ProtocolError("bad_json", "x"), OSError("reset"), TransportError("reset")),
    *(response(ServerError, 500), response(AuthError, 403), response(NotFoundError, 404)),
]
SECONDS = st.sampled_from([0.0, 0.5, 3.0, 20.0, 70.0])


def state_of(wait: _Wait) -> list[object]:
    return [getattr(wait, name, None) for name in _Wait.__slots__ if name not in {"_warnings", "_update", "_durations"}]


@given(
    st.lists(st.tuples(SECONDS, st.sampled_from(ANSWERS), st.booleans()), max_size=12),
    st.sampled_from([None, 0.4, 5.0, 100.0]),
    st.sampled_from([ACTIVE, REF]),
)
def test_jobs_are_taken_as_decide_says(
    history: list[tuple[float, AgentJob | Exception, bool]], timeout: float | None, target: AgentJob | JobRef
) -> None:
    """An answer that is a job takes a shorter way than others, to the same state as by `decide`."""
    policy = every(2, not_found_grace=5, max_bad_answers=2, answer_grace=60)
    short, full = (_Wait(target, policy=policy, timeout=timeout, on_update=None) for _ in range(2))
    now = 100.0
    assert short.begin(now) is full.begin(now) is None
    for seconds, answer, cut in history:
        now += seconds
        short.poll()
        full.poll()
        as_any = JobWithRetryAfter(answer, 0.0) if isinstance(answer, AgentJob) else answer
        result = short.take(answer, now, cut=cut)
        assert result is full.take(as_any, now, cut=cut)
        assert state_of(short) == state_of(full)
        if result is not None:
            break


async def test_bad_arguments() -> None:
    """A setting that makes no sense, and a bare id, are refused by name before anything is read."""
    get_job = Polled("completed")

    async def check(name: str, value: Any) -> None:
        arguments: dict[str, Any] = {"job": REF, "get_job": get_job} | {name: value}
        with pytest.raises(InvalidInputError, match=f"^{name} must be"):
            await wait_for_job(**arguments)

    assert await failures_at_once(check, ("job", "job_1"), ("get_job", None), ("policy", 5)) == {}
    assert get_job.asked == []

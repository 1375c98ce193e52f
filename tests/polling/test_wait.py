"""What the free wait alone has: it runs in its caller's task, without a tracker."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from agentjobs_async import (
    AgentJob,
    InvalidInputError,
    JobRef,
    SessionClosedError,
    WaitTimeoutError,
    wait_for_job,
)
from tests.polled import ACTIVE, DONE, REF, Polled, every, in_memory
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


def test_outside_of_asyncio() -> None:
    """Without an event loop of asyncio, as under another library's, the wait says so."""
    with pytest.raises(
        SessionClosedError, match="wait_for_job works in a running event loop of asyncio only"
    ) as caught:
        wait_for_job(REF, get_job=Polled.__call__).send(None)  # type: ignore[arg-type]  # it is never called
    assert caught.value.__context__ is None


async def test_bad_arguments() -> None:
    """A setting that makes no sense, and a bare id, are refused by name before anything is read."""
    get_job = Polled("completed")

    async def check(name: str, value: Any) -> None:
        arguments: dict[str, Any] = {"job": REF, "get_job": get_job} | {name: value}
        with pytest.raises(InvalidInputError, match=f"^{name} must be"):
            await wait_for_job(**arguments)

    assert await failures_at_once(check, ("job", "job_1"), ("get_job", None), ("policy", 5)) == {}
    assert get_job.asked == []

"""What a caller may pass as `get_job`."""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest
import tenacity

from agentjobs_async import (
    AgentJob,
    InvalidInputError,
    JobRef,
    JobStatus,
    JobTracker,
    PollBudget,
    ProtocolError,
    SessionClosedError,
    wait_for_job,
)
from agentjobs_async.models import JobSource
from tests.polled import ACTIVE, DONE, REF, Polled, clock, every, in_memory, let_go, swallows
from tests.rows import failures_at_once
from tests.scripted import session_of


async def read(_ref: JobRef) -> AgentJob:
    return DONE


async def read_from(_where: str, _ref: JobRef) -> AgentJob:
    return DONE


class Service:
    """Reads jobs by a method, and by a call of itself."""

    async def __call__(self, _ref: JobRef) -> AgentJob:
        return DONE

    async def read(self, _ref: JobRef) -> AgentJob:
        return DONE


def read_by_future(_ref: JobRef) -> asyncio.Future[AgentJob]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(DONE)
    return future


ASYNC: Final[dict[str, Callable[[JobRef], Any]]] = {
    "function": read,
    "method": Service().read,
    "object": Service(),
    "partial": partial(read_from, "here"),
    "lambda": lambda ref: read_from("here", ref),
    "future": read_by_future,
    "mock": AsyncMock(return_value=DONE),
}


async def read_by_both(get_job: Any) -> list[AgentJob]:
    """Return what a tracker and the free wait return for it."""
    async with JobTracker(get_job, policy=every(1)) as tracker:
        return [await tracker.wait_for_job(REF), await wait_for_job(REF, get_job=get_job, policy=every(1))]


async def test_every_kind_of_async_callable() -> None:
    """A function, a method, an object: whatever returns an awaitable reads jobs."""

    async def check(kind: str) -> None:
        assert await read_by_both(ASYNC[kind]) == [DONE, DONE]

    assert await failures_at_once(check, *ASYNC) == {}


# What passes for a coroutine function, and is none.
marked = getattr(inspect, "markcoroutinefunction", lambda function: function)  # from Python 3.12 on


async def test_what_is_not_async() -> None:
    """A plain function is named as the mistake that it is, at its first call."""

    async def check(sync: Any) -> None:
        async with JobTracker(sync) as tracker:
            for waiting in (tracker.wait_for_job(REF), wait_for_job(REF, get_job=sync)):
                with pytest.raises(InvalidInputError, match="get_job must be async: it returned"):
                    await waiting

    assert await failures_at_once(check, lambda _: DONE, lambda _: None, marked(lambda _: DONE)) == {}


async def test_what_it_may_give() -> None:
    """It gives an `AgentJob`, taken as it is, or the service's document as a mapping."""
    assert all(got is DONE for got in await read_by_both(Polled(DONE)))
    document = {"id": "job_1", "status": "completed"}
    for got in await read_by_both(Polled(document)):
        assert (got.id, got.project_id, got.status, got.raw) == ("job_1", "docs", JobStatus.COMPLETED, document)


@in_memory
async def test_what_it_may_not_give() -> None:
    """A document that is not the job asked for is a bad answer, as a server's is."""

    async def check(found: object, reason: str) -> None:
        async with JobTracker(by_tracker := Polled(found), policy=every(1)) as tracker:
            free = wait_for_job(REF, get_job=(by_itself := Polled(found)), policy=every(1))
            for waiting in (tracker.wait_for_job(REF), free):
                with pytest.raises(ProtocolError) as caught:
                    await waiting
                assert caught.value.reason == reason
        assert len(by_tracker.asked) == len(by_itself.asked) == 5

    rows: list[tuple[object, str]] = [({"id": "job_2", "status": "completed"}, "wrong_id")]
    odd = [
        AgentJob("job_1", "docs", "active", JobSource(ref="\ud800")),
        {"id": "job_1", "status": "done", "x": ["\ud800"]},
    ]
    rows += [(found, "bad_json") for found in odd]
    rows += [(found, "schema") for found in ({"id": "job_1"}, {})]
    assert await failures_at_once(check, *rows) == {}


@in_memory
async def test_mistakes_in_the_program() -> None:
    """What is neither job nor mapping, or a job of another ref, ends waits and reads at its first poll, told by name.

    It does so after a good answer, too, and where `policy.retry` takes every exception for a passing one.
    """
    policy = every(1, retry=tenacity.retry_always)

    async def check(found: object, words: str) -> None:
        async with JobTracker(by_tracker := Polled(ACTIVE, found), policy=policy) as tracker:
            free = wait_for_job(REF, get_job=(by_itself := Polled(ACTIVE, found)), policy=policy)
            async with session_of(get_job=Polled(found)) as session:
                for waiting in (tracker.wait_for_job(REF), free, session.get_job(REF)):
                    with pytest.raises(InvalidInputError, match=words) as caught:
                        await waiting
                    assert caught.value.ref == REF
        assert len(by_tracker.asked) == len(by_itself.asked) == 2

    rows: list[tuple[object, str]] = [
        (None, "not NoneType"),
        ([DONE], "not list"),
        (5, "not int"),
        (b"{}", "not bytes"),
        (AgentJob("job_2", "docs", "completed"), "another job, docs~.job_2"),
        (AgentJob("job_1", "elsewhere", "completed"), "another job, elsewhere~.job_1"),
        (AgentJob("", "docs", "completed"), "another job, docs~."),
    ]
    assert await failures_at_once(check, *rows) == {}


@in_memory
async def test_closing_ends_a_read_that_waits_for_its_turn() -> None:
    """A read that waits for its turn is ended by closing, whatever the one before does, and asks for nothing later."""
    read = Polled(jobs={"job_1": [swallows], "job_2": ["active"]})
    session = session_of(get_job=read, budget=PollBudget(in_flight=1))
    first, second = (asyncio.create_task(session.get_job(JobRef("docs", name))) for name in ("job_1", "job_2"))
    await let_go()
    began = clock()
    await session.aclose()
    await asyncio.wait([second])
    assert isinstance(second.exception(), SessionClosedError)
    assert clock() - began < 0.1
    await asyncio.wait([first])
    assert read.at("job_2") == []

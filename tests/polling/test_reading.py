"""What a caller may pass as `get_job`."""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest

from agentjobs_async import AgentJob, InvalidInputError, JobRef, JobTracker, wait_for_job
from tests.polled import DONE, REF


async def read(_ref: JobRef) -> AgentJob:
    return DONE


async def read_from(_place: str, _ref: JobRef) -> AgentJob:
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


@pytest.mark.parametrize("kind", ASYNC)
async def test_every_kind_of_async_callable(kind: str) -> None:
    """A function, a method, an object: whatever returns an awaitable reads jobs."""
    async with JobTracker(ASYNC[kind]) as tracker:
        assert await tracker.wait_for_job(REF) is DONE
        assert await wait_for_job(REF, get_job=ASYNC[kind]) is DONE


# What passes for a coroutine function, and is none.
marked = getattr(inspect, "markcoroutinefunction", lambda function: function)  # from Python 3.12 on


@pytest.mark.parametrize("sync", [lambda _: DONE, lambda _: None, marked(lambda _: DONE)])
async def test_what_is_not_async(sync: Any) -> None:
    """A tracker names a plain function as the mistake that it is, at its first call."""
    async with JobTracker(sync) as tracker:
        with pytest.raises(InvalidInputError, match="get_job must be async: it returned"):
            await tracker.wait_for_job(REF)

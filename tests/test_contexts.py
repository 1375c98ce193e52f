"""Calls in somebody's context, or in none."""

import asyncio
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

import pytest

from agentjobs_async._contexts import RunApart, call_apart, call_in

NAME: ContextVar[str] = ContextVar("NAME")


def test_call_in() -> None:
    """A call runs in the context that it is given, and what it sets there stays there."""
    context, seen = Context(), list[str | None]()

    def call(name: str) -> None:
        seen.append(NAME.get(None))
        NAME.set(name)

    call_in(context, call, "first")
    call_in(context, call, "second")
    assert (seen, context[NAME], NAME.get(None)) == ([None, "first"], "second", None)


def test_call_within_its_own_call() -> None:
    """A call that comes while its context is in use sees the same variables, however the calls are nested."""
    context, other, seen = Context(), Context(), list[str]()

    def nested(calls: list[Any]) -> None:
        if calls:
            calls[0](nested, calls[1:])
        else:
            seen.append(NAME.get())

    context.run(NAME.set, "mine")
    other.run(NAME.set, "other")
    call_in(context, nested, [partial(call_in, context)])
    call_in(context, nested, [partial(call_in, other), partial(call_in, context)])
    assert seen == ["mine", "mine"]


def test_call_apart() -> None:
    """A call that belongs to nobody sees no variable, and leaves none behind."""
    token, seen = NAME.set("mine"), list[int]()

    def call(name: str) -> None:
        seen.append(len(copy_context()))
        NAME.set(name)

    call_apart(call, "theirs")
    call_apart(call, "theirs")
    assert (seen, NAME.get()) == ([0, 0], "mine")
    NAME.reset(token)


async def test_run_apart() -> None:
    """A coroutine runs in an empty context, in the task that awaits it; values, faults and cancellations pass."""
    NAME.set("mine")
    seen = list[object]()

    async def works(fault: Exception | None) -> str:
        seen.append(len(copy_context()))
        NAME.set("theirs")
        try:
            await asyncio.sleep(0)
            seen.append((NAME.get(), asyncio.current_task() is task))
            if fault is not None:
                raise fault
            await asyncio.Event().wait()
        finally:
            seen.append("left")
        return "never"

    for fault, raised in ((ZeroDivisionError(), ZeroDivisionError), (None, TimeoutError)):
        task = asyncio.current_task()
        with pytest.raises(raised):
            async with asyncio.timeout(0.01):
                await RunApart(works(fault))
        assert (seen, NAME.get()) == ([0, ("theirs", True), "left"], "mine")
        seen.clear()


async def test_run_apart_given_up() -> None:
    """A coroutine that is given up in the middle is closed."""
    left = asyncio.Event()

    async def works() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            left.set()

    steps = RunApart(works()).__await__()
    next(steps)
    steps.close()
    assert left.is_set()

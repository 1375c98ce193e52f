"""Calls in somebody's context, or in none."""

from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

from agentjobs_async.telemetry.contexts import call_apart, call_in

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

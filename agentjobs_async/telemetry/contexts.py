"""Calls made in the context of a caller or in an empty one: no caller's variables reach another's code."""

from collections.abc import Callable
from contextvars import Context
from typing import TypeVar

__all__ = ["call_apart", "call_in"]

T = TypeVar("T")


def call_in(context: Context, call: Callable[[T], None], value: T) -> None:
    """Call `call` with `value` in `context`, or in a copy while something runs in it already.

    `call` must contain what its own callback raises.
    """
    try:
        context.run(call, value)
    except RuntimeError:  # entered already: a callback that runs in it ended its own wait, say
        context.copy().run(call, value)


def call_apart(call: Callable[[T], None], value: T) -> None:
    """Call `call` with `value` in an empty context: it belongs to no caller."""
    Context().run(call, value)

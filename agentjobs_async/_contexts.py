"""Calls and coroutines run in a given context or in an empty one: no caller's variables reach another's code."""

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

__all__ = ["RunApart", "call_apart", "call_in"]

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


class RunApart(Generic[T]):
    """Awaits a coroutine in an empty context, in the task that awaits it: no other task, which could outlive it.

    Whatever the coroutine makes that lasts (sockets, timers) keeps no variable of its caller alive.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the coroutine step by step."""
        context, coroutine = Context(), self._coroutine
        try:
            awaited = context.run(coroutine.send, None)
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    context.run(coroutine.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - a cancellation, say: it is the coroutine's
                    awaited = context.run(coroutine.throw, error)
                else:
                    awaited = context.run(coroutine.send, value)
        except StopIteration as end:
            result: T = end.value
            return result

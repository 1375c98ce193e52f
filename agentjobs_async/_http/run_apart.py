"""Coroutines run in an empty context: what they make that lasts keeps no variable of a caller."""

from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

__all__ = ["RunApart"]

T = TypeVar("T")


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

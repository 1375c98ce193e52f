"""An exchange whose answer counts, although its task is cancelled in the very moment in which it comes."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_IDLE_ITERATIONS: Final = 4  # of the loop in a row, in which nothing comes: the rest of the answer is not in the socket
_LAST_ITERATIONS: Final = 40  # at most: one or two for each 64 KiB, of which a document of 1 MiB has 16


class LateCancel(Generic[T]):
    """Await a coroutine, and pass a cancellation on to it only some iterations of the loop later.

    A coroutine that has ended by then is not cancelled. The cancellation is raised all the same, and the result is
    lost: the coroutine itself has to store what must not be lost. It runs in the task that awaits it, since the end of
    `asyncio.run` would cancel a task of its own like all others.

    Args:
        coroutine: What is awaited. A time-out within it works as usual.
        may_last: Asked at a cancellation; if it returns false, the coroutine is cancelled at once.
    """

    __slots__ = ("_awaited", "_coroutine", "_ended", "_may_last", "_result")

    _result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T], may_last: Callable[[], bool]) -> None:
        self._coroutine = coroutine
        self._may_last = may_last
        self._awaited: Any = None
        self._ended = False

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the coroutine step by step."""
        task = asyncio.current_task()
        cancelling = 0 if task is None else task.cancelling()
        try:
            self._step(self._coroutine.send, None)
            cut = yield from self._run_until_cancelled()
            if cut is None:
                return self._result
            if self._may_last():
                yield from self._run_last_iterations()
            if not self._ended:
                yield from self._cancel(cut)
            elif task is not None and task.cancelling() > cancelling:
                raise cut  # else a time-out within was about to cut what has ended
            return self._result
        finally:
            # The traceback of a cancellation holds this frame, which must hold neither that nor what was received.
            cut = self._awaited = None
            self._coroutine.close()

    def _step(self, resume: Callable[[Any], Any], value: object) -> None:
        """Run the coroutine until it awaits something, or ends."""
        try:
            self._awaited = resume(value)
        except StopIteration as end:
            self._ended, self._result = True, end.value
        finally:
            del resume, value  # as above

    def _run_until_cancelled(self) -> Generator[Any, Any, asyncio.CancelledError | None]:
        """Run the coroutine until its task is cancelled, and return the cancellation; `None` if it has ended before."""
        while not self._ended:
            try:
                yield from _until_done(self._awaited)
            except asyncio.CancelledError as error:
                return error.with_traceback(None)  # its frames hold what the coroutine awaits
            self._step(self._coroutine.send, None)
        return None

    def _run_last_iterations(self) -> Generator[Any, Any, None]:
        """Run the coroutine for some iterations of the loop more, however often its task is cancelled."""
        idle = 0
        for _ in range(_LAST_ITERATIONS):
            idle += 1
            while not self._ended and asyncio.isfuture(self._awaited) and self._awaited.done():
                self._step(self._coroutine.send, None)
                idle = 0
            if self._ended or idle > _IDLE_ITERATIONS:
                return
            with suppress(asyncio.CancelledError):
                yield
            if not asyncio.isfuture(self._awaited):  # it only waited for the next iteration
                self._step(self._coroutine.send, None)

    def _cancel(self, cut: asyncio.CancelledError) -> Generator[Any, Any, None]:
        """Cancel what the coroutine awaits, else the coroutine itself, and run it to its end, as a task would."""
        try:
            if not (asyncio.isfuture(self._awaited) and self._awaited.cancel(*cut.args)):
                self._step(self._coroutine.throw, cut)
        finally:
            del cut  # as above
        while not self._ended:
            try:
                value = yield self._awaited
            except asyncio.CancelledError as error:
                self._step(self._coroutine.throw, error)
            else:
                self._step(self._coroutine.send, value)


def _until_done(awaited: Any) -> Generator[Any, Any, None]:
    """Wait until `awaited` is done, or for one iteration if it is no future. A cancellation does not end it."""
    if not asyncio.isfuture(awaited):
        yield awaited
        return
    done: asyncio.Future[None] = awaited.get_loop().create_future()

    def on_done(_awaited: object) -> None:
        if not done.done():
            done.set_result(None)

    awaited.add_done_callback(on_done)
    try:
        yield from done
    finally:
        awaited.remove_done_callback(on_done)

"""The loop of one process, as its system gives it: timers, threads, connections and signals.

Each process has a loop of its own, as it has outside: what is kept for a loop dies with it.
"""

import asyncio
import contextlib
import socket
import sqlite3
import threading
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from heapq import heappop
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.world import World


class _Numbered:
    """Sets of tasks and futures have the same order each time: by number, not by where in memory they are."""

    def __init__(self, *args: Any, loop: "Loop", **options: Any) -> None:
        loop.world.made += 1
        self._number = loop.world.made
        super().__init__(*args, loop=loop, **options)  # type: ignore[call-arg]  # of a task or a future

    def __hash__(self) -> int:
        return self._number


class _Future(_Numbered, asyncio.Future):  # type: ignore[type-arg]  # of anything
    pass


class _Task(_Numbered, asyncio.Task):  # type: ignore[type-arg]  # of anything
    pass


class Loop(asyncio.BaseEventLoop):
    """The loop of one process: nothing of it is real but the order in which it calls.

    Attributes:
        skew: How many seconds its wall clock is ahead.
        blocked_until: When its thread is free again.
        transports: Its open connections.
        owned: What the system frees when its process ends: open files and their locks.
        signal_handlers: As `signal.signal` sets them, by their numbers.
        signal_callbacks: As `add_signal_handler` sets them.
    """

    _ready: deque[Any]  # these are asyncio's own
    _scheduled: list[Any]
    _closed: bool
    _asyncgen_finalizer_hook: Any

    def __init__(self, world: "World", name: str) -> None:
        super().__init__()
        self.world = world
        self._default_executor_thread = SimpleNamespace()
        self._thread_id = threading.get_ident()
        self.name = name
        self.process: Process
        self.signal_handlers: dict[int, Any] = {}
        self.signal_callbacks: dict[int, tuple[Any, ...]] = {}
        self.skew = 0.0
        self.blocked_until = 0.0
        self.transports: dict[Any, None] = {}
        self.owned = contextlib.ExitStack()
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _loop, context: self.errors.append(context))

    def time(self) -> float:
        return self.world.now

    def create_future(self) -> Any:
        return _Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        return _Task(coro, loop=self, **options)

    def _write_to_self(self) -> None:
        """Do nothing: no thread has to be woken."""

    def call_first(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call this before all that is to be called."""
        self.call_soon(callback, *arguments, context=Context())
        self._ready.rotate()

    def due(self) -> float:
        """Return when there is something to do, in loop time; infinite if there is nothing."""
        while self._scheduled and self._scheduled[0]._cancelled:
            heappop(self._scheduled)._scheduled = False
        return 0.0 if self._ready else self._scheduled[0]._when if self._scheduled else inf

    def move_due(self) -> None:
        """Move the timers that are due to what is called next."""
        while self._scheduled and self._scheduled[0]._when <= self.world.now:
            handle = heappop(self._scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                self._ready.append(handle)

    async def sock_connect(self, sock: socket.socket, _address: Any) -> None:
        await self.world.network.connect(self, sock)

    async def create_connection(self, protocol_factory: Any, *_address: Any, sock: Any = None, **_options: Any) -> Any:
        return self.world.network.open(self, protocol_factory(), sock)

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]  # of anything
        self.signal_callbacks[sig] = (callback, *args)
        self.signal_handlers[sig] = _to_loop  # whoever puts another handler in its place disturbs the loop's own not

    def remove_signal_handler(self, sig: int) -> bool:
        self.signal_handlers.pop(sig, None)
        return self.signal_callbacks.pop(sig, None) is not None

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # of anything
        future = self.create_future()
        world, thread = self.world, executor or self._default_executor_thread
        begins = max(world.now, getattr(thread, "free_at", 0.0)) + 0.0001
        thread.free_at = begins + 0.0002

        def work() -> None:
            if future.cancelled():
                return
            world.slept = 0.0
            events._set_running_loop(None)
            try:
                settle = partial(future.set_result, func(*args))
            except Exception as error:  # noqa: BLE001 - the future's
                settle = partial(future.set_exception, error)
            finally:
                events._set_running_loop(self)
            thread.free_at = world.now + world.slept + 0.0002
            self.call_later(0.0001 + world.slept, end, settle, context=Context())
            world.slept = 0.0

        def end(settle: Callable[[], None]) -> None:
            if not future.done():
                settle()

        self.call_at(begins, work, context=Context())
        return future

    def left_behind(self) -> list[str]:
        """Return what a program that has ended left in its loop."""
        tasks = [repr(task) for task in asyncio.all_tasks(self) if not task.done()]
        timers = [repr(one) for one in self._scheduled if not one._cancelled and not _is_outside(one._callback)]
        return [*tasks, *timers, *map(repr, self.transports), *map(repr, self.errors)]

    def kill(self) -> None:
        """End as a killed process does: nothing more is called, what was not committed is gone, locks are free."""
        self.world.loops.remove(self)
        self.world.dead.append(self)
        self._unfinished = asyncio.all_tasks(self)  # kept: a task that is collected runs its `finally`
        for transport in list(self.transports):
            transport.vanish()
        with contextlib.suppress(sqlite3.Error):
            self.owned.close()


def _to_loop(_number: int, _frame: object) -> None:
    """Do nothing: the loop has noticed the signal by itself."""


def _is_outside(callback: Any) -> bool:
    """Return whether a timer is the world's own: of a look-up or of what the network carries."""
    return type(getattr(callback, "__self__", None)).__module__.startswith("tests.simulation")

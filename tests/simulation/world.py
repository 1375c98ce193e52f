"""Time, threads, disks and processes of a world in which the package alone is real; a seed decides all the rest.

Each process has a loop of its own, as it has outside: what is kept for a loop dies with it. All loops share one clock,
which moves only when none of them has anything to do.
"""

import asyncio
import contextlib
import gc
import os
import random
import socket
import sqlite3
import sys
import threading
import time
from asyncio import events
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from functools import partial
from heapq import heappop
from math import inf
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from attrs import define, field, frozen

from agentjobs_async import JournalError
from agentjobs_async._http import name_lookup
from agentjobs_async.batch._store import file_lock

EPOCH: Final = 1_800_000_000.0  # the wall clock, in seconds, when a world begins
_MOST_EVENTS: Final = 1_000_000  # of one world
_LONGEST_SILENCE: Final = 5 * 3600.0  # s between two connections; an outage takes 2 h, a rate 1 h


class ViolationError(Exception):
    """A promise was broken."""


@frozen
class Fault:
    """One thing that goes wrong.

    Attributes:
        where: What is counted: `connection`, `lookup`, `create`, `job`, `poll`, `commit`, `call` or `event`; or
            `time`.
        at: Which of them it befalls, from 1; for `time`, seconds since the world began.
        what: What happens.
        amount: Seconds; bytes for what cuts a connection; which task a `cancel` takes; not 0 where a refused create
            starts an agent nevertheless.
        text: The direction of a connection's fault, the Retry-After of an answer, the kind of an outage.
    """

    where: str
    at: int
    what: str
    amount: float = 0.0
    text: str = ""


class World:
    """One clock, the processes that live by it, and the faults that befall them.

    Attributes:
        now: Seconds since it began.
        trace: What happened, one line each.
        happened: When each of the faults that took effect did so, the last time.
    """

    def __init__(self, seed: int, faults: tuple[Fault, ...]) -> None:
        self.now = 0.0
        self.seed = seed
        self.trace: list[str] = []
        self.happened: dict[Fault, float] = {}
        self.events = 0
        self.made = 0  # tasks and futures
        self.kills = 0
        self.down_until = 0.0  # when the last program that is down is started again
        self.slept = 0.0  # s, by the work in a thread that runs at present
        self.lookup_fails = False
        self.outages: list[tuple[float, float, str]] = []  # from when, until when, of which kind
        self.random = random.Random(f"{seed} order")
        self.violations: list[str] = []
        self.network: Any = None  # makes the connections: `Network`
        self.loops: list[Loop] = []
        self.dead: list[Loop] = []  # never resumed, and not collected before the end: their `finally` must not run
        self.current: Any = None  # the loop whose turn it is
        self.loop = self.add_loop("service")  # the service's and the world's own; it has no faults
        self._counts: Counter[str] = Counter()
        self._planned: dict[tuple[str, int], list[Fault]] = defaultdict(list)
        for fault in faults:
            self._planned[fault.where, fault.at].append(fault)
            if fault.where == "time":
                self.loop.call_at(fault.at, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        self.note_fault(fault)
        if fault.what == "outage":
            self.outages.append((self.now, self.now + fault.amount, fault.text))
        for loop in self.loops[1:]:
            if fault.what == "clock":
                loop.skew += fault.amount
            elif fault.what == "stall":
                loop.blocked_until = self.now + fault.amount

    def next(self, where: str) -> list[Fault]:
        """Count one more of `where`, and return the faults that befall it."""
        self._counts[where] += 1
        found = self._planned.get((where, self._counts[where]), [])
        for fault in found:
            self.note_fault(fault)
            if fault.what in {"kill", "cancel"} and self.current not in {None, self.loop}:
                self.current.call_first(self.current.process.apply, fault)
        return found

    def note_fault(self, fault: Fault) -> None:
        """Note that a fault takes effect."""
        self.happened[fault] = self.now
        self.note(f"! {fault.where} {fault.at}: {fault.what} {fault.amount:g} {fault.text}")

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now:.6f} {self.current.name if self.current else '-'}: {line}")

    def violate(self, words: str) -> None:
        """Record a broken promise: the world ends with it."""
        self.note(words)
        self.violations.append(words)

    def outage(self) -> str | None:
        """Return of which kind the outage is that lasts at present."""
        return next((kind for since, until, kind in self.outages if since <= self.now < until), None)

    def wall(self) -> float:
        """Return the wall clock of the process whose turn it is."""
        return EPOCH + self.now + self.slept + (self.current.skew if self.current else 0.0)

    def clock(self) -> float:
        """Return what a monotonic clock shows."""
        return self.now + self.slept

    def sleep(self, seconds: float) -> None:
        """Let the work in a thread that runs at present take longer."""
        self.slept += seconds

    def add_loop(self, name: str) -> "Loop":
        """Return the loop of a new process."""
        loop = Loop(self, name)
        self.loops.append(loop)
        return loop

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let everything happen, one callback of one loop at a time, until `is_over`."""
        hooks = sys.get_asyncgen_hooks()
        try:
            while not is_over():
                self._turn(self._next_loop())
        finally:
            self.current = None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def run_for(self, seconds: float) -> None:
        """Let everything happen for so many seconds."""
        over: list[bool] = []
        self.loop.call_later(seconds, over.append, True, context=Context())
        self.run(lambda: bool(over))

    def stalled(self, since: float, until: float) -> bool:
        """Return whether the programs stood still at any time between two moments."""
        stalls = [fault for fault in self.happened if fault.what == "stall"]
        return any(fault.at <= until and fault.at + fault.amount >= since for fault in stalls)

    def _next_loop(self) -> "Loop":
        ready = [loop for loop in self.loops if loop._ready and loop.blocked_until <= self.now]
        if not ready:
            when = min(max(loop.due(), loop.blocked_until) for loop in self.loops)
            if when == inf:
                raise ViolationError("World: everything waits for ever")
            self.now = max(self.now, when)
            for loop in self.loops:
                loop.move_due()
            return self._next_loop()
        return ready[0] if len(ready) == 1 else self.random.choice(ready)

    def _turn(self, loop: "Loop") -> None:
        self.events += 1
        if self.events > _MOST_EVENTS or self.now - max(self.network.last, self.down_until) > _LONGEST_SILENCE:
            raise ViolationError(f"World: {self.events} events; nothing was sent since {self.network.last:g}")
        if self.current is not loop:
            self.current = loop
            events._set_running_loop(loop)
            sys.set_asyncgen_hooks(finalizer=loop._asyncgen_finalizer_hook)
        handle = loop._ready.popleft()
        if not handle._cancelled:
            handle._run()
            if loop is not self.loop:
                self.next("event")


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
    """

    _ready: deque[Any]  # these are asyncio's own
    _scheduled: list[Any]
    _closed: bool
    _asyncgen_finalizer_hook: Any

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self.world = world
        self._default_executor_thread = SimpleNamespace()
        self._thread_id = threading.get_ident()
        self.name = name
        self.process: Process
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


def _is_outside(callback: Any) -> bool:
    """Return whether a timer is the world's own: of a look-up or of what the network carries."""
    return type(getattr(callback, "__self__", None)).__module__.startswith("tests.simulation")


@define(eq=False)
class Process:
    """A program that is started again whenever it was killed, or its journal failed: that may work then.

    Attributes:
        main: Runs the program; called at each start.
        cancelled_at: When each task was cancelled, of those that a fault has cancelled.
        cancellable: The tasks that a caller may cancel at any time.
    """

    _world: World
    name: str
    _main: Callable[["Process"], Coroutine[Any, Any, None]]
    starts: int = 0
    is_over: bool = False
    error: BaseException | None = None
    cancelled_at: dict[asyncio.Task[Any], float] = field(factory=dict)
    cancellable: dict[asyncio.Task[Any], None] = field(factory=dict)
    loop: Loop = field(init=False)
    _task: asyncio.Task[None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start it, again after a kill."""
        self.starts += 1
        skew = self.loop.skew if self.starts > 1 else 0.0
        self.loop = self._world.add_loop(f"{self.name}.{self.starts}")
        self.loop.process, self.loop.skew = self, skew
        self.cancellable = {}
        self._task = self.loop.create_task(self._main(self), context=Context())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._world.note("ended" if error is None else f"ended with {type(error).__name__}: {error}")
        if not isinstance(error, JournalError) or self.starts > 200:
            self.error, self.is_over = error, True
        else:
            self._kill(60.0)

    def apply(self, fault: Fault) -> None:
        """Be killed, or have a task cancelled."""
        if self._task.done() or self.loop not in self._world.loops:
            return
        if fault.what == "kill":
            self._world.kills += 1
            self._kill(fault.amount)
        elif self.cancellable:
            tasks = list(self.cancellable)
            task = tasks[int(fault.amount) % len(tasks)]
            self._world.note(f"cancels one of {len(tasks)} tasks")
            self.cancelled_at.setdefault(task, self._world.now)
            task.cancel()

    def _kill(self, downtime: float) -> None:
        self.loop.kill()
        self._world.down_until = max(self._world.down_until, self._world.now + downtime)
        self._world.loop.call_later(downtime, self.start, context=Context())


@frozen
class _LookupThread:
    """Looks a name up, as a thread would: after a while."""

    world: World
    target: Callable[[], None]
    name: str
    daemon: bool

    def start(self) -> None:
        faults = self.world.next("lookup")
        delay = sum((fault.amount for fault in faults if fault.what == "slow"), 0.002)
        asyncio.get_running_loop().call_later(delay, self._run, faults, context=Context())

    def _run(self, faults: list[Fault]) -> None:
        self.world.lookup_fails = self.world.outage() == "names" or any(fault.what == "fail" for fault in faults)
        self.target()
        self.world.lookup_fails = False


class _Database(sqlite3.Connection):
    """A connection to a file whose commits fail when the seed says so."""

    world: Any = None  # the one that is run at present; SQLAlchemy keeps connections that were not closed

    def commit(self) -> None:
        world = self.world
        faults = world.next("commit")
        for fault in faults:
            if fault.what == "slow":
                world.sleep(fault.amount)
            elif fault.what in {"fail", "full"}:
                if fault.amount < 1.0:  # SQLite itself rolls back after some errors, not after all
                    super().rollback()
                raise _disk_error(sqlite3.SQLITE_FULL if fault.what == "full" else sqlite3.SQLITE_IOERR)
        super().commit()
        world.note("committed")
        if any(fault.what == "lost" for fault in faults):
            raise _disk_error(sqlite3.SQLITE_IOERR)


def _disk_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full" if code == sqlite3.SQLITE_FULL else "disk I/O error")
    error.sqlite_errorcode = code
    return error


@contextlib.contextmanager
def replaced(world: World) -> Iterator[None]:
    """Replace clocks, threads, names and randomness, of the whole program, until the block is left."""
    real_connect, real_lock = sqlite3.connect, file_lock._lock_of

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = real_connect(*args, factory=_Database, **options)
        world.current.owned.callback(connection.close)
        return connection

    def lock_of(beside: Any) -> Any:
        lock = real_lock(beside)
        world.current.owned.callback(lock.release, force=True)
        return lock

    def addresses(*_arguments: Any, **_options: Any) -> list[Any]:
        if world.lookup_fails:
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]

    modules = [module for name, module in sys.modules.items() if name.startswith("agentjobs_async")]
    replacements: list[tuple[Any, str, Any]] = [
        *((module, "time", world.wall) for module in modules if vars(module).get("time") is time.time),
        (time, "time", world.wall),
        (time, "monotonic", world.clock),
        (time, "perf_counter", world.clock),
        (time, "sleep", world.sleep),
        (os, "urandom", random.Random(f"{world.seed} identities").randbytes),
        (socket, "getaddrinfo", addresses),
        (name_lookup, "threading", SimpleNamespace(Thread=partial(_LookupThread, world))),
        (file_lock, "_lock_of", lock_of),
        (file_lock, "_ACQUIRE_SECONDS", 0.0),  # filelock waits in real time
        (_Database, "world", world),
        (sqlite3, "connect", connect),
        (sqlite3.dbapi2, "connect", connect),
    ]
    with contextlib.ExitStack() as stack:
        for part, name, value in replacements:
            stack.enter_context(patch.object(part, name, value))
        random.seed(world.seed)
        gc.disable()
        stack.callback(gc.enable)
        yield

"""What the system gives to all processes: clocks, names, disks, signals and randomness; none of it is real."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from attrs import frozen

from agentjobs_async._http import name_lookup
from agentjobs_async._loop import signals
from agentjobs_async.batch._database import file_lock
from agentjobs_async.web import shutdown
from tests.simulation.world import Fault, World


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
        if world.current is world.loop:  # the world looks at a journal
            super().commit()
            return
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


@frozen
class _System:
    """What the package calls of `os` to end its process; the rest is real."""

    world: World

    def _exit(self, _code: int) -> None:
        self.world.current.process.exit("signal")

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class _OwnDrainings(list[Any]):
    """The list of a module, of which each process sees its own entries, as if it had imported the module itself."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __iter__(self) -> Iterator[Any]:
        return (each for each in super().__iter__() if each.loop is self._world.current)


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

    def set_handler(number: int, handler: Any) -> Any:
        handlers = world.current.signal_handlers
        before, handlers[number] = handlers.get(number, signal.SIG_DFL), handler
        return before

    def handler_of(number: int) -> Any:
        return world.current.signal_handlers.get(number, signal.SIG_DFL)

    def end_process(_number: int) -> None:
        world.current.process.exit("signal")

    modules = [module for name, module in sys.modules.items() if name.startswith("agentjobs_async")]
    replacements: list[tuple[Any, str, Any]] = [
        *((module, "time", world.wall) for module in modules if vars(module).get("time") is time.time),
        (time, "time", world.wall),
        (time, "monotonic", world.clock),
        (time, "perf_counter", world.clock),
        (time, "clock_gettime", lambda _clock: world.clock()),
        (time, "sleep", world.sleep),
        (shutdown, "_DRAININGS", _OwnDrainings(world)),
        *((module, "os", _System(world)) for module in (shutdown, signals)),
        (signal, "signal", set_handler),
        (signal, "getsignal", handler_of),
        (signal, "raise_signal", end_process),
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

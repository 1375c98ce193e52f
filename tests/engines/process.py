"""A worker of the queue as a process of its own, which may send a signal to itself at a point of its work.

The process from which such workers are forked imports this once.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_longlong
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from procrastinate.manager import JobManager
from sqlalchemy import true

from agentjobs_async import AgentJobsSession, PollPolicy
from agentjobs_async.batch import BatchWorker, Journal
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.store import Store
from agentjobs_async.engines._connector import QueueConnector
from agentjobs_async.engines.procrastinate import run_worker
from agentjobs_async.testing._session import EmulatorSession

GATE: Final = 4
"""The most creates under way at once in one worker."""
NEVER: Final = 600.0
"""Seconds until a worker counts as dead: longer than any machine stands still within a test."""
POINTS: Final[dict[str, tuple[type, str, str]]] = {
    "before it runs a chunk": (BatchWorker, "run", "before"),
    "before it claims": (Store, "claim", "before"),
    "when it has claimed": (Store, "claim", "after"),
    "before it sends": (AgentJobsSession, "create_job", "before"),
    "when it has the answer": (AgentJobsSession, "create_job", "after"),
    "when it has recorded the id": (Records, "created", "after"),
    "before it records the end": (Records, "ended", "before"),
    "when it has recorded the end": (Records, "ended", "after"),
    "before it ends the chunk": (QueueConnector, "execute_query_async", "finish_job"),
    "before it gives the chunk back": (QueueConnector, "execute_query_async", "retry_job"),
    "before it says good-bye": (QueueConnector, "execute_query_async", "unregister"),
}
"""Before or after a call, or before a query with a word."""
POINTS_OF_LEAVING: Final = {"before it gives the chunk back", "before it says good-bye"}
_SOON_SECONDS: Final = 0.25
_DEFAULT_PATIENCE: Final = 30.0
"""Of the command line, which has no setting for it."""
_STORE: Final = "agentjobs_async.batch._store"
_ENGINES: Final = "agentjobs_async.engines"


@contextmanager
def impatient(patience: float = NEVER) -> Iterator[None]:
    """Let workers of a patience beat and sweep often, and let the server count as up for long from its start."""
    often = patience / _SOON_SECONDS
    with ExitStack() as changes:
        for name in (f"{_STORE}.heartbeat._BEATS", f"{_ENGINES}.procrastinate._BEATS", f"{_ENGINES}._sweeping._SWEEPS"):
            changes.enter_context(patch(name, often))
        changes.enter_context(patch(f"{_STORE}.statements.server_is_up_for", lambda _: true()))
        yield


@contextmanager
def unhurried() -> Iterator[None]:
    """Let no worker leave before the database has recorded all: the machine may stand still meanwhile."""
    batch = "agentjobs_async.batch"
    bounds: tuple[str, ...] = (f"{batch}._run.tasks._SETTLING_SECONDS", f"{batch}._run.tasks._CANCELLED_SECONDS")
    bounds += (f"{batch}.journal._CLOSING_SECONDS", f"{batch}.journal._CANCELLED_SECONDS")
    bounds += (f"{_STORE}.heartbeat._PARTING_SECONDS", f"{_ENGINES}.procrastinate._LEAVING_SECONDS")
    with ExitStack() as changes:
        for name in bounds:
            changes.enter_context(patch(name, NEVER))
        yield


def run_command(told: c_longlong, *arguments: str) -> None:
    """Run the command line; `told` gets the number of its worker in the queue."""
    from agentjobs_async.__main__ import main  # noqa: PLC0415 - a child that runs it as a module must not find it imported

    _tell_number(told)
    with impatient(_DEFAULT_PATIENCE), unhurried():
        sys.exit(main(arguments))


def run(told: c_longlong, base_url: str, key: str, location: str, point: str = "", number: int = 0) -> None:
    """Work until SIGTERM or SIGINT.

    Args:
        told: Gets the worker's number in the queue.
        base_url: The address of the service.
        key: Its key.
        location: The database.
        point: Where it sends a signal to itself, once; it ends with 1 if it has not come there.
        number: The number of that signal.
    """
    stop = asyncio.Event()
    missed = {point} - {""}

    def arrive() -> None:
        if missed:
            missed.clear()
            os.kill(os.getpid(), number)

    if point:
        owner, name, when = POINTS[point]
        _call_around(owner, name, when, lambda _: arrive())
    if point in POINTS_OF_LEAVING:
        _call_around(Records, "created", "after", lambda _: stop.set())
    _tell_number(told)
    clock = patch(f"{_STORE}.heartbeat.time", _clock_that_goes_on())
    with impatient(), unhurried(), clock, suppress(KeyboardInterrupt):
        asyncio.run(_work(base_url, key, location, stop))
    sys.exit(len(missed))


def _tell_number(told: c_longlong) -> None:
    def tell(found: int) -> None:
        told.value = found

    _call_around(JobManager, "register_worker", "after", tell)


async def _work(base_url: str, key: str, location: str, stop: asyncio.Event) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    policy = PollPolicy(wait=lambda _: 0.05)
    async with EmulatorSession(base_url, key, project_id="docs", policy=policy) as session:
        async with Journal.open(location, owner_timeout=NEVER) as journal:
            await run_worker(session, journal, max_sending=GATE, stalled_after=NEVER, polling=0.2, stop=stop)


def _call_around(owner: type, name: str, when: str, called: Callable[[Any], None]) -> None:
    """Call something after a method, with what it returned, or else before it."""
    real = getattr(owner, name)

    async def around(*arguments: Any, **settings: Any) -> Any:
        if when == "before" or when in str(settings.get("query")):
            called(None)
        found = await real(*arguments, **settings)
        if when == "after":
            called(found)
        return found

    setattr(owner, name, around)


def _clock_that_goes_on() -> SimpleNamespace:
    """Return the clock of a machine that stands still for very long whenever the process is stopped."""
    stood = [0.0]
    signal.signal(signal.SIGCONT, lambda *_: stood.append(NEVER))
    return SimpleNamespace(
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
        clock_gettime=lambda clock: time.clock_gettime(clock) + sum(stood),
        time=time.time,
    )

"""Draining sessions at a signal: for servers, whose lifespan ends after their requests, and for other programs."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any, Final

from attrs import define, field, frozen

from agentjobs_async import AgentJobsSession, InvalidInputError, JobRef, JobTracker
from agentjobs_async._loop.signals import end_process, stop_signals
from agentjobs_async._validation import checked_flag, checked_seconds

__all__ = ["drain_on_signal"]

_UNRECORDED_EXIT_CODE: Final = 4  # as of the command line where something is left to be done


@asynccontextmanager
async def drain_on_signal(
    session: AgentJobsSession | JobTracker,
    *,
    grace: float = 10.0,
    signals: Sequence[signal.Signals] | None = None,
    pass_on: bool = True,
) -> AsyncGenerator[asyncio.Event]:
    """Drain the session at the first of `signals`; the block gets an `asyncio.Event`, which is set then.

    Enter it right after the session, before a journal is opened: then a signal at any moment lets what is under way be
    recorded.

    In a server such as uvicorn, its place is the lifespan. Such a server waits for its open requests before the
    lifespan ends, and a stream without end would keep it from ending: draining ends all waits and streams. Each signal
    is passed on to the server's own handler.

    In a program without a server, enter it with `pass_on=False`, and wait for the event: no signal ends the program,
    and a second one changes nothing.

    Leaving the block waits for the draining, if it has begun; leaving the last one of the process puts the handlers
    back. Outside of the main thread, as in sync test clients, where no signal arrives, the event is never set.

    Args:
        session: A session or tracker of the running loop.
        grace: As in `drain`.
        signals: Which signals; `None` for SIGINT, SIGTERM, and SIGHUP unless the process ignores it. A signal that had
            no handler of Python's ends the process as before, also as process 1 of a container, but only when all
            sessions of the process that it drains are drained. If a draining left jobs unrecorded, the exit code is 4.
        pass_on: Whether each signal is passed on to the handler that was there before; where blocks of one process
            differ, it is not. One that was added by the loop's own `add_signal_handler` is called all the same.

    Raises:
        InvalidInputError: `grace` is not a finite number from 0 on, `pass_on` no bool, or `session` neither session nor
            tracker.
    """
    checked_seconds("grace", grace, zero=True)
    checked_flag("pass_on", pass_on)
    if not isinstance(session, AgentJobsSession | JobTracker):
        raise InvalidInputError(f"session must be a session or a tracker, not {type(session).__name__}")
    if threading.current_thread() is not threading.main_thread():
        yield asyncio.Event()
        return
    draining = _Draining(session, grace, frozenset(stop_signals() if signals is None else signals), pass_on)
    _DRAININGS.append(draining)
    try:
        for number in draining.signals:
            before = signal.getsignal(number)
            if not isinstance(before, _Handler):  # none of ours yet, or a server has put its own in the place since
                signal.signal(number, _Handler(before))
        yield draining.begun
    finally:
        try:
            await draining.wait()  # while it is in the list: another one's end must not end the process before
        finally:
            _DRAININGS.remove(draining)
            for number in draining.signals:
                handler = signal.getsignal(number)
                if isinstance(handler, _Handler) and not _drainings_at(number):
                    signal.signal(number, handler.before)


@define(eq=False)
class _Draining:
    """The draining of one session, begun once at most, from a signal handler."""

    _session: AgentJobsSession | JobTracker
    _grace: float
    signals: frozenset[signal.Signals]
    pass_on: bool
    begun: asyncio.Event = field(factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop = field(factory=asyncio.get_running_loop)
    process: int = field(factory=os.getpid)
    _task: asyncio.Task[tuple[JobRef, ...]] | None = None
    _is_asked: bool = False

    @property
    def done(self) -> bool:
        return self._task is not None and self._task.done()

    @property
    def left_unrecorded(self) -> bool:
        """Whether it has ended, and left jobs that are not recorded."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return False
        return self._task.exception() is None and bool(self._task.result())

    def start_soon(self, fatal: int | None = None) -> None:
        """Start the draining in the loop; `fatal` is the signal that ends the process once all are drained."""
        self._is_asked = True
        self.loop.call_soon_threadsafe(self._start, fatal)  # of another thread: it wakes a loop that sleeps

    def _start(self, fatal: int | None) -> None:
        if self._task is None:
            self._task = self.loop.create_task(self._session.drain(self._grace))
            self.begun.set()
        if fatal is not None:
            self._task.add_done_callback(lambda _task: _end_process(fatal))

    async def wait(self) -> None:
        """Wait for the draining, if it has begun, or is about to."""
        if self._is_asked and self._task is None:
            await asyncio.sleep(0)  # what was put into the loop before comes first
        if self._task is not None:
            await self._task


_DRAININGS: Final[list[_Draining]] = []
"""Of all sessions of this process, whichever of them has put a handler in place."""


def _drainings_at(number: int) -> list[_Draining]:
    live = [each for each in _DRAININGS if each.process == os.getpid() and not each.loop.is_closed()]  # no parent's
    return [each for each in live if number in each.signals]


@frozen
class _Handler:
    """Drains all sessions of the process that a signal is to drain, and may pass it on to the handler `before`."""

    before: Any

    def __call__(self, number: int, frame: FrameType | None) -> None:
        pass_on = all(draining.pass_on for draining in _drainings_at(number))
        if pass_on and self.before == signal.SIG_DFL:
            _end_process(number)
            return
        for draining in _drainings_at(number):
            draining.start_soon()
        if pass_on and callable(self.before):
            self.before(number, frame)


def _end_process(number: int) -> None:
    """End the process by a signal, once all are drained; begin what has not, such as one entered since the signal."""
    left = [draining for draining in _drainings_at(number) if not draining.done]
    for draining in left:
        draining.start_soon(number)
    if left:
        return
    if any(draining.left_unrecorded for draining in _drainings_at(number)):
        os._exit(_UNRECORDED_EXIT_CODE)  # the ids are in the log
    end_process(number)

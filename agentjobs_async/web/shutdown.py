"""Draining a session at a signal, for servers whose lifespan ends after their requests."""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

from agentjobs_async import AgentJobsSession, InvalidInputError, JobTracker
from agentjobs_async._validation import checked_seconds

__all__ = ["drain_on_signal"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@asynccontextmanager
async def drain_on_signal(
    session: AgentJobsSession | JobTracker, *, grace: float = 10.0, signals: Sequence[signal.Signals] = _SIGNALS
) -> AsyncGenerator[None]:
    """Drain the session at the first of `signals`, then pass each signal on to the handler that was there before.

    For servers such as uvicorn, which wait for their open requests before the lifespan ends: a stream without end would
    keep them from ending. Enter it in the lifespan, within the block of the session. Leaving the block waits for the
    draining, if it has begun, and puts the handlers back. Outside of the main thread, as in sync test clients, where no
    signal arrives, it does nothing.

    Args:
        session: A session or tracker of the running loop.
        grace: As in `drain`.
        signals: Which signals; SIGTERM and SIGINT by default. One that had no handler of Python's ends the process as
            before, but only when the session is drained.

    Raises:
        InvalidInputError: `grace` is not a finite number from 0 on, or `session` is neither session nor tracker.
    """
    checked_seconds("grace", grace, zero=True)
    if not isinstance(session, AgentJobsSession | JobTracker):
        raise InvalidInputError(f"session must be a session or a tracker, not {type(session).__name__}")
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    draining = _Draining(session, grace)
    previous = {number: signal.getsignal(number) for number in signals}

    def handle(number: int, frame: FrameType | None) -> None:
        before = previous[signal.Signals(number)]
        draining.start_soon(number if before == signal.SIG_DFL else None)
        if callable(before):
            before(number, frame)

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, before in previous.items():
            if signal.getsignal(number) is handle:  # else another has taken its place since
                signal.signal(number, before)
        await draining.wait()


class _Draining:
    """The draining of one session, begun once at most, from a signal handler."""

    def __init__(self, session: AgentJobsSession | JobTracker, grace: float) -> None:
        self._session = session
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def start_soon(self, fatal: int | None) -> None:
        """Start the draining in the loop; `fatal` is a signal by which the process ends when it is done."""
        self._loop.call_soon_threadsafe(self._start, fatal)  # of another thread: it wakes a loop that sleeps

    def _start(self, fatal: int | None) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._session.drain(self._grace))
        if fatal is not None:
            self._task.add_done_callback(lambda _task: _end_process(fatal))

    async def wait(self) -> None:
        """Wait for the draining, if it has begun."""
        if self._task is not None:
            await self._task


def _end_process(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)

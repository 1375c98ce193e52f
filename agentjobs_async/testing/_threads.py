"""Threads beside a test: one that runs an event loop, and one that notices a loop that is blocked."""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, TypeVar

M = TypeVar("M", bound=AbstractAsyncContextManager[Any])

_LOGGER: Final = logging.getLogger("agentjobs_async.testing")
_BLOCKED_SECONDS: Final = 2.0  # no test step that yields to the loop takes as long
_CHECK_SECONDS: Final = 0.5  # between two checks


@contextmanager
def entered_in_thread(manager: M) -> Iterator[M]:
    """Enter an async context manager on the event loop of a thread of its own, which runs while the block lasts.

    Args:
        manager: The manager, which returns itself when it is entered.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="agentjobs-emulator", daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    try:
        run(manager.__aenter__())
        try:
            yield manager
        finally:
            run(manager.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def blocked_loop_reported(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Log a warning, once, if the running loop does nothing for 2 s while the block lasts.

    It is meant for an emulator on the loop of a test that calls a blocking client: neither would ever continue.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_report_blocked, args=(loop, ended), name="agentjobs-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _report_blocked(loop: asyncio.AbstractEventLoop, ended: threading.Event) -> None:
    while not ended.wait(_CHECK_SECONDS):
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        if not turned.wait(_BLOCKED_SECONDS) and not ended.is_set():
            _LOGGER.warning(
                "the emulator's event loop has been blocked for %g s, so no request is answered; run the emulator by"
                " Emulator.in_thread() for clients that block",
                _BLOCKED_SECONDS,
            )
            return

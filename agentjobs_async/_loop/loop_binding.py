"""Where a session or tracker may be used: in one event loop of one process, until it is closed."""

import asyncio
import os
import sys
import warnings

from agentjobs_async.errors import SessionClosedError


class LoopBinding:
    """Binds a session or tracker to the loop and the process of its first use.

    Another loop would never run its timers and futures; a forked child would share its sockets with the parent.

    Args:
        what: What uses it, as error messages call that: "session" or "tracker".

    Attributes:
        closed: Whether `close` was called.
        draining: Whether `drain` was called.
    """

    __slots__ = ("_loop", "_made_at", "_process", "_what", "closed", "draining")

    def __init__(self, what: str) -> None:
        self._what = what
        self._made_at = _caller()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self.closed = False
        self.draining = False

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the loop; the first call binds to the running one.

        Raises:
            SessionClosedError: It is closed or draining, or bound to another loop or process; or no loop is running.
        """
        self.check()
        return self._here()

    def check(self) -> None:
        """Raise what `enter` raises where it is closed or bound; bind nothing."""
        if self.closed:
            raise SessionClosedError(f"the {self._what} is closed; make a new one")
        if self.draining:
            raise self.drained_error()
        self._is_bound_here()

    @property
    def over(self) -> bool:
        """Whether it was closed, or left open in a loop or a process that is gone. It may be asked in any thread."""
        return self.closed or (self._loop is not None and (self._loop.is_closed() or self._process != os.getpid()))

    def drain(self) -> bool:
        """Refuse further calls; return whether it was open and bound, so that calls may be under way.

        Raises:
            SessionClosedError: It is open, and bound to another loop or process.
        """
        if self.closed:
            return False
        bound = self._is_bound_here()
        self.draining = True
        return bound

    def drained_error(self) -> SessionClosedError:
        """Return the error of a call that is refused, or of a wait that is ended, by `drain`."""
        return SessionClosedError(f"the {self._what} is shutting down; a job continues: wait for it again by its token")

    def close(self) -> bool:
        """Refuse all calls; return whether it was open and bound, so that there is something to shut down.

        Raises:
            SessionClosedError: It is open, and bound to another loop or process.
        """
        if self.closed:
            return False
        bound = self._is_bound_here()
        self.closed = True
        return bound

    def _is_bound_here(self) -> bool:
        """Return whether it is bound; an error if that is to another loop or process."""
        if self._loop is None:
            return False
        self._here()
        return True

    def unclosed(self, user: object) -> asyncio.AbstractEventLoop | None:
        """Return the loop of a `user` that is being deleted in use and was never closed, with a `ResourceWarning`.

        `None` if there is nothing to shut down: it was closed, never used, or belongs to the parent process.
        """
        if self.closed or self._loop is None or self._process != os.getpid():
            return None
        path, line = self._made_at
        message = f"{type(user).__name__} made at {path}:{line} was never closed: use async with, or aclose()"
        warnings.warn_explicit(message, ResourceWarning, path, line, source=user)
        return self._loop

    def _here(self) -> asyncio.AbstractEventLoop:
        loop = running_loop(f"the {self._what}")
        if self._loop is None:
            self._loop, self._process = loop, os.getpid()
        if self._process != os.getpid():
            raise SessionClosedError(
                f"the {self._what} belongs to the process that forked this one; make a new one here"
            )
        if self._loop is not loop:
            raise SessionClosedError(f"the {self._what} belongs to another event loop; make one for each loop")
        return loop


def running_loop(what: str) -> asyncio.AbstractEventLoop:
    """Return the running event loop, in which `what` is about to work.

    Raises:
        SessionClosedError: None of asyncio is running in this thread.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    # Raised outside of the except clause: what asyncio says of it would only be shown before it.
    raise SessionClosedError(f"{what} works in a running event loop of asyncio only: call it from a coroutine")


def _caller() -> tuple[str, int]:
    """Return file and line of the innermost frame outside of this package."""
    frame = sys._getframe()  # noqa: SLF001 - documented; inspect.stack() would read every source file
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{package}."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno

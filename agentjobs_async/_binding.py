"""Where a session or tracker may be used: in one event loop of one process, until it is closed."""

import asyncio
import os

from agentjobs_async.errors import SessionClosedError

__all__ = ["Binding"]


class Binding:
    """Binds to the loop and the process of its first use.

    Attributes:
        closed: Whether `close` was called.
    """

    __slots__ = ("_loop", "_process", "_what", "closed")

    def __init__(self, what: str) -> None:
        self._what = what
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self.closed = False

    def enter(self) -> asyncio.AbstractEventLoop:
        """Give the loop that this is bound to, binding to the running one at first.

        Raises:
            SessionClosedError: It is closed, or bound to another loop or to another process.
        """
        if self.closed:
            raise SessionClosedError(f"the {self._what} is closed; make a new one")
        return self._here()

    def close(self) -> bool:
        """Mark as closed; tell whether this call did it, and there is something to take down.

        Raises:
            SessionClosedError: It is open, and bound to another loop or to another process.
        """
        if self.closed:
            return False
        bound = self._loop is not None
        if bound:
            self._here()
        self.closed = True
        return bound

    def _here(self) -> asyncio.AbstractEventLoop:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None:
            raise SessionClosedError(f"the {self._what} works in a running event loop only: call it from a coroutine")
        if self._loop is None:
            self._loop, self._process = loop, os.getpid()
        if self._process != os.getpid():
            raise SessionClosedError(
                f"the {self._what} belongs to the process that forked this one; make a new one here"
            )
        if self._loop is not loop:
            raise SessionClosedError(f"the {self._what} belongs to another event loop; make one for each loop")
        return loop

"""The budget of all reads of one session: places in flight, and starts per second."""

import asyncio
from types import TracebackType

from agentjobs_async.policy import PollBudget

__all__ = ["Gate"]


class Gate:
    """A block that few may be in at once. Waiting for a place comes before any timeout of a request starts."""

    __slots__ = ("_interval", "_next", "_places")

    def __init__(self, budget: PollBudget) -> None:
        self._places = asyncio.Semaphore(budget.in_flight)
        self._interval = 0.0 if budget.per_second is None else 1 / budget.per_second
        self._next = 0.0

    async def __aenter__(self) -> None:
        await self._places.acquire()
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + self._interval
        if start > now:
            try:
                await asyncio.sleep(start - now)
            except BaseException:
                self._places.release()
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._places.release()

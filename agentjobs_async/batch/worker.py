"""Sets of a journal's keys, worked off as an engine hands them out."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from types import MappingProxyType, TracebackType
from typing import Final, Self

from agentjobs_async import AgentJobsError, AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async.batch.course import Course, Means
from agentjobs_async.batch.courses import ActiveItem, Courses
from agentjobs_async.batch.items import BatchResult, Outcome
from agentjobs_async.batch.journal import Journal
from agentjobs_async.batch.limits import Limits
from agentjobs_async.batch.pace import Pace
from agentjobs_async.batch.runner import BatchStats
from agentjobs_async.batch.states import State

__all__ = ["BatchWorker"]

_TO_DO: Final = frozenset({State.PLANNED, State.CREATED})

_logger: Final = logging.getLogger("agentjobs_async.batch")


class BatchWorker:
    """Brings items of a journal to their ends, any number of sets at once, through one gate and one session.

    It is what an engine needs that hands out work at least once: a set that is run again, or twice at a time, in
    this process or another one, does no harm, since only who claims a row may send it. How many items are active, and
    how many creates go, is bounded by the journal's `FleetLimits`. Use it as `async with`.

    Args:
        session: Where to. It is not closed.
        journal: An open one, not read-only.
        gate: How many creates are under way at once: what the death of this process can leave unsure.
        timeout: Seconds that each item's create and wait may take together, each time; `None` for ever.
        on_result: A plain function that is called with each result; if it raises, that is logged.

    Raises:
        InvalidInputError: An argument makes no sense.
    """

    def __init__(
        self,
        session: AgentJobsSession,
        journal: Journal,
        *,
        gate: int = 10,
        timeout: float | None = 1800.0,
        on_result: Callable[[BatchResult], object] | None = None,
    ) -> None:
        self._limits = Limits(1, None, timeout, None, None, gate)
        self._session = session
        self.journal = journal
        self._on_result = on_result
        self._outcomes: Counter[Outcome] = Counter()
        self._courses: Courses | None = None

    async def __aenter__(self) -> Self:
        limits, entries = self._limits, self.journal.entries
        entries.mask(self._session.mask)
        gate = asyncio.Semaphore(limits.gate)
        means = Means(
            self._session, entries, Pace(None), gate, limits.timeout, halted=asyncio.Event(), closing=asyncio.Event()
        )
        self._courses = Courses(means)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Begin nothing more, wait up to 10 s for answers of creates under way, and leave the rest to others."""
        if self._courses is not None:
            await self._courses.drain()

    async def run(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Bring the items of some hundred keys to their ends, and give the keys of those which have not ended.

        These are to be run again, later: their time ran out, somebody else is sending them, or they can't be sent or
        read for the time being. Keys that the journal does not know are left out. Cancelling leaves at once; creates
        under way go on to their answers.

        Raises:
            JournalError: The journal can't be read or written.
            AuthError: 401: the key is refused, and would be for every item; nothing more is sent after this error or
                one of the next two.
            NotSentError: The service's certificate is not trusted, or the proxy refuses.
            SessionClosedError: The session was closed.
            InvalidInputError: The worker is not open.
        """
        courses = self._open
        rows = await self.journal.entries.named(keys)
        begun = [courses.begin(row, self._run) for row in rows.values() if row.state in _TO_DO]
        try:
            if begun:
                await asyncio.wait(begun)
        except asyncio.CancelledError:
            courses.leave(begun)
            raise
        for task in begun:
            if not task.cancelled() and (fault := task.exception()) is not None:
                raise fault
        return await self.journal.entries.unended(keys)

    def stats(self) -> BatchStats:
        """Give a snapshot."""
        states = Counter[State]() if self._courses is None else self._courses.states()
        return BatchStats(
            waiting=states[State.PLANNED],
            active=states[State.SENDING] + states[State.CREATED],
            next_create=None if self._courses is None else self._courses.next_create(),
            outcomes=MappingProxyType(dict(self._outcomes)),
            stopped=False,
        )

    def active(self) -> list[ActiveItem]:
        """Give the items under way."""
        return [] if self._courses is None else self._courses.active()

    @property
    def _open(self) -> Courses:
        if self._courses is None:
            raise InvalidInputError("the worker is not open: use it inside of async with BatchWorker(...)")
        return self._courses

    async def _run(self, course: Course) -> None:
        try:
            result = await course.run()
        except JournalError:
            raise
        except AgentJobsError:
            self._open.halt()  # every other item would meet the same
            raise
        if result is None:
            return
        self._outcomes[result.outcome] += 1
        if self._on_result is not None:
            try:
                self._on_result(result)
            except Exception:
                _logger.exception("on_result raised")

"""The items under way in one run, each in a task of its own."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

from attrs import frozen

from agentjobs_async import AgentJobsError, JobRef
from agentjobs_async.batch._item_run import ItemRun, RunContext
from agentjobs_async.batch._store.entries import JournalRow
from agentjobs_async.batch.states import State

__all__ = ["GRACE", "ActiveItem", "ItemTasks"]

GRACE: Final = 10.0
_SETTLING_SECONDS: Final = 3.0  # for the journal to take what is known in the end, when it answers slowly or not at all
_CANCELLED_SECONDS: Final = 0.5  # the same when nothing is waited for: cancelling leaves soon


@frozen
class ActiveItem:
    """An item that a run is busy with.

    Attributes:
        state: planned (it waits for its create), sending or created.
        age: Seconds since it is in this state.
        ref: Its job; `None` before that is known.
    """

    key: str
    state: State
    age: float
    ref: JobRef | None


class ItemTasks:
    """The courses of items, by their tasks."""

    def __init__(self, means: RunContext) -> None:
        self.means = means
        self._courses: dict[asyncio.Task[None], ItemRun] = {}

    def __len__(self) -> int:
        return len(self._courses)

    def begin(
        self, row: JournalRow, run: Callable[[ItemRun], Coroutine[Any, Any, None]], context: Context | None = None
    ) -> asyncio.Task[None]:
        """Start an item that is planned or created, in a copy of `context` or of the current one; return its task."""
        course = ItemRun.of(row, self.means)
        task = asyncio.create_task(run(course), context=None if context is None else context.copy())
        self._courses[task] = course
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._courses[task]
        if not task.cancelled():
            task.exception()  # of many that fail, callers get one; nobody is to hear that the others were not retrieved

    def active(self) -> list[ActiveItem]:
        """Return the items under way, the oldest first."""
        now = asyncio.get_running_loop().time()
        return [
            ActiveItem(
                course.row.key, course.state, now - course.since, course.ref if isinstance(course.ref, JobRef) else None
            )
            for course in self._courses.values()
            if not course.over
        ]

    def states(self) -> Counter[State]:
        """Count the items under way by their states."""
        return Counter(course.state for course in self._courses.values() if not course.over)

    def next_create(self) -> float | None:
        """Return the seconds until the next create may go; `None` when that depends on one that is under way."""
        due = self.means.throttles.next_at(self._waiting_projects())
        if due is None:
            return None
        place_at = self.means.places.next_free_at or 0.0
        return max(max(due, place_at) - asyncio.get_running_loop().time(), 0.0)

    def paused_by(self) -> Exception | None:
        """Return why creates of items that wait are held back; `None` when nothing but a rate does so."""
        return self.means.throttles.paused_by(self._waiting_projects())

    def _waiting_projects(self) -> set[str | None]:
        return {
            course.place.project
            for course in self._courses.values()
            if course.state is State.PLANNED and not course.over
        }

    def projects(self) -> set[str | None]:
        """Return the projects of the items under way."""
        return {course.place.project for course in self._courses.values() if not course.over}

    async def ended(self) -> None:
        """Wait until all that has begun so far has ended."""
        if self._courses:
            await asyncio.wait(list(self._courses))

    def halt(self) -> None:
        """Stop sending: cancel the items that wait for their create."""
        self.means.halted.set()
        current = asyncio.current_task()
        for task, course in self._courses.items():
            if course.state is State.PLANNED and not course.over and task is not current:
                task.cancel()

    def fail(self) -> None:
        """Stop sending, and end the waits. Creates under way go on to their responses, and no further."""
        self.means.closing.set()
        self.halt()
        current = asyncio.current_task()
        self.leave([task for task, course in self._courses.items() if not course.over and task is not current])

    def leave(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel these items, except creates under way, which go on to their responses, and no further."""
        for task in tasks:
            course = self._courses.get(task)
            if course is not None:
                course.leaving = True
                if course.state is not State.SENDING:
                    task.cancel()

    async def drain(self, *others: asyncio.Task[None], grace: float = GRACE) -> None:
        """Wait for `grace` seconds for the answers of creates under way, and cancel the rest and the tasks of `others`.

        The journal gets 3 s more to take what is known, or half a second where `grace` is 0.
        """
        self.means.closing.set()
        self.halt()
        sending = [task for task, course in self._courses.items() if course.state is State.SENDING]
        self.leave(list(self._courses))
        try:
            if sending:
                await asyncio.wait(sending, timeout=grace)
        finally:
            try:
                await self._cut(others, _SETTLING_SECONDS if grace else _CANCELLED_SECONDS)
            finally:
                await self.means.unrecorded.close()

    async def _cut(self, others: Iterable[asyncio.Task[None]], patience: float) -> None:
        """Cancel what is left, and keep that nobody knows what became of the creates that this cuts off.

        A claim that is cut off had no answer: nothing was sent under it, and its row may be another owner's.
        """
        sending = [course for course in self._courses.values() if course.state is State.SENDING]
        left = [*self._courses, *others]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        error = AgentJobsError("the run was left before the answer came")
        claimed = [course for course in sending if course.claim is not None]
        lost = (self.means.entries.mark_unknown(course.row.key, error, claim=course.claim) for course in claimed)
        # A row that stays `sending` becomes unknown when its owner has gone.
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.gather(*lost, self.means.entries.flush(), return_exceptions=True)

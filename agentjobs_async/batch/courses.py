"""The items under way in one run, each in a task of its own."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from attrs import frozen

from agentjobs_async import AgentJobsError, JobRef
from agentjobs_async.batch.course import Course, Means
from agentjobs_async.batch.entries import JournalRow
from agentjobs_async.batch.states import State

__all__ = ["GRACE", "ActiveItem", "Courses"]

GRACE: Final = 10.0


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


class Courses:
    """The courses of items, by their tasks."""

    def __init__(self, means: Means) -> None:
        self.means = means
        self._courses: dict[asyncio.Task[None], Course] = {}

    def __len__(self) -> int:
        return len(self._courses)

    def begin(self, row: JournalRow, run: Callable[[Course], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Begin an item that is planned or created, and give the task in which `run` works on it."""
        course = Course.of(row, self.means)
        task = asyncio.create_task(run(course))
        self._courses[task] = course
        task.add_done_callback(self._courses.pop)
        return task

    def active(self) -> list[ActiveItem]:
        """Give the items under way, the oldest first."""
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
        """Give the seconds until the next create may go; `None` when that depends on one that is under way."""
        due = self.means.pace.next_at
        return None if due is None else max(due - asyncio.get_running_loop().time(), 0.0)

    async def ended(self) -> None:
        """Wait until all that has begun so far has ended."""
        if self._courses:
            await asyncio.wait(list(self._courses))

    def halt(self) -> None:
        """Let nothing more be sent: what waits for its create is let go."""
        self.means.halted.set()
        current = asyncio.current_task()
        for task, course in self._courses.items():
            if course.state is State.PLANNED and not course.over and task is not current:
                task.cancel()

    def fail(self) -> None:
        """Let nothing more be sent, and end the waits: creates under way go on to their answers, and no further."""
        self.means.closing.set()
        self.halt()
        current = asyncio.current_task()
        self.leave([task for task, course in self._courses.items() if not course.over and task is not current])

    def leave(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Let these items go, but for creates under way, which go on to their answers, and no further."""
        for task in tasks:
            course = self._courses.get(task)
            if course is not None:
                course.leaving = True
                if course.state is not State.SENDING:
                    task.cancel()

    async def drain(self, *others: asyncio.Task[None], grace: float = GRACE) -> None:
        """Wait so many seconds for the answers of creates under way, and cancel the rest and the tasks of `others`."""
        self.means.closing.set()
        self.halt()
        sending = [task for task, course in self._courses.items() if course.state is State.SENDING]
        self.leave(list(self._courses))
        try:
            if sending:
                await asyncio.wait(sending, timeout=grace)
        finally:
            await self._cut(others)

    async def _cut(self, others: Iterable[asyncio.Task[None]]) -> None:
        """Cancel what is left, and keep that nobody knows what became of the creates that this cuts off."""
        unsure = [course for course in self._courses.values() if course.state is State.SENDING]
        left = [*self._courses, *others]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        error = AgentJobsError("the run was left before the answer came")
        lost = (self.means.entries.lost(course.row.key, error, claim=course.claim) for course in unsure)
        # A row that stays `sending` becomes unknown when its owner has gone.
        await asyncio.gather(*lost, self.means.entries.settle(), return_exceptions=True)

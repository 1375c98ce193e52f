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
from agentjobs_async.batch._store.rows import JournalRow
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

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self._runs: dict[asyncio.Task[None], ItemRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def begin(
        self,
        row: JournalRow,
        run: Callable[[ItemRun], Coroutine[Any, Any, None]],
        caller_context: Context | None = None,
    ) -> asyncio.Task[None]:
        """Start an item that is planned or created, in a copy of `caller_context` or the current context."""
        item = ItemRun.of(row, self.context)
        task = asyncio.create_task(run(item), context=None if caller_context is None else caller_context.copy())
        self._runs[task] = item
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        if not task.cancelled():
            task.exception()  # of many that fail, callers get one; nobody is to hear that the others were not retrieved

    def active(self) -> list[ActiveItem]:
        """Return the items under way, the oldest first."""
        now = asyncio.get_running_loop().time()
        return [
            ActiveItem(item.row.key, item.state, now - item.since, item.ref if isinstance(item.ref, JobRef) else None)
            for item in self._runs.values()
            if not item.over
        ]

    def states(self) -> Counter[State]:
        """Count the items under way by their states."""
        return Counter(item.state for item in self._runs.values() if not item.over)

    def next_create(self) -> float | None:
        """Return the seconds until the next create may go; `None` when that depends on one that is under way."""
        due = [self._next_create_of(project) for project in self._waiting_projects()]
        known = [at for at in due or [self._next_create_of(self.context.session.project_id)] if at is not None]
        return max(min(known) - asyncio.get_running_loop().time(), 0.0) if known else None

    def _next_create_of(self, project: str | None) -> float | None:
        at = self.context.throttles.next_at(project)
        return None if at is None else max(at, self.context.slots.next_free_at(project) or at)

    def paused_by(self) -> Exception | None:
        """Return why creates of items that wait are held back; `None` when nothing but a rate does so."""
        return self.context.throttles.paused_by(self._waiting_projects())

    def _waiting_projects(self) -> set[str | None]:
        return {item.slot.project for item in self._runs.values() if item.state is State.PLANNED and not item.over}

    def projects(self) -> set[str | None]:
        """Return the projects of the items under way."""
        return {item.slot.project for item in self._runs.values() if not item.over}

    async def ended(self) -> None:
        """Wait until all that has begun so far has ended."""
        if self._runs:
            await asyncio.wait(list(self._runs))

    def halt(self) -> None:
        """Stop sending: cancel the items that wait for their create."""
        self.context.halted.set()
        current = asyncio.current_task()
        for task, item in self._runs.items():
            if item.state is State.PLANNED and not item.over and task is not current:
                task.cancel()

    def fail(self) -> None:
        """Stop sending, and end the waits. Creates under way go on to their responses, and no further."""
        self.context.closing.set()
        self.halt()
        current = asyncio.current_task()
        self.leave([task for task, item in self._runs.items() if not item.over and task is not current])

    def leave(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel these items, except creates under way, which go on to their responses, and no further."""
        for task in tasks:
            item = self._runs.get(task)
            if item is not None:
                item.leaving = True
                if item.state is not State.SENDING:
                    task.cancel()

    async def drain(self, *others: asyncio.Task[None], grace: float = GRACE) -> None:
        """Wait for `grace` seconds for the answers of creates under way, and cancel the rest and the tasks of `others`.

        The journal gets 3 s more to take what is known, or half a second where `grace` is 0.
        """
        self.context.closing.set()
        self.halt()
        sending = [task for task, item in self._runs.items() if item.state is State.SENDING]
        self.leave(list(self._runs))
        try:
            if sending:
                await asyncio.wait(sending, timeout=grace)
        finally:
            try:
                await self._cut(others, _SETTLING_SECONDS if grace else _CANCELLED_SECONDS)
            finally:
                await self.context.unrecorded.close()

    async def _cut(self, others: Iterable[asyncio.Task[None]], patience: float) -> None:
        """Cancel what is left, and keep that nobody knows what became of the creates that this cuts off.

        A claim that is cut off had no answer: nothing was sent under it, and its row may be another owner's.
        """
        sending = [item for item in self._runs.values() if item.state is State.SENDING]
        left = [*self._runs, *others]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        error = AgentJobsError("the run was left before the answer came")
        claimed = [item for item in sending if item.claim is not None]
        lost = (self.context.entries.mark_unknown(item.row.key, error, claim=item.claim) for item in claimed)
        # A row that stays `sending` becomes unknown when its owner has gone.
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.gather(*lost, self.context.entries.flush(), return_exceptions=True)

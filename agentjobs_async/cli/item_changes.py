"""The changes of a batch's jobs, each named by its item."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from attrs import evolve

from agentjobs_async import Event, JobRef, JournalError
from agentjobs_async.batch import ActiveItem, Journal, JournalRow
from agentjobs_async.cli.documents import Change
from agentjobs_async.cli.job_changes import JobChanges

__all__ = ["ItemChanges"]

_AGAIN_SECONDS: Final = 0.1  # the row of a create is named one commit after its response


class Active(Protocol):
    """A run that knows its active items."""

    def active(self) -> Sequence[ActiveItem]:
        """Return the active items."""
        ...


class ItemChanges:
    """A hook that reports the changes of a batch's jobs in the order in which they happened.

    An event names the job, and a line names the item. The row of a job is found by the active items of the run, as soon
    as the journal has the job; until then its changes wait.

    Args:
        on_change: Called with each change.
    """

    def __init__(self, on_change: Callable[[Change], object]) -> None:
        self._on_change = on_change
        self._changes = JobChanges(self._add)
        self._waiting: deque[Change] = deque()
        self._rows: dict[JobRef, JournalRow] = {}
        self._happened = asyncio.Event()
        self._order = asyncio.Lock()

    def __call__(self, event: Event, /) -> None:
        """Keep a change until its item is known."""
        self._changes(event)

    @asynccontextmanager
    async def reported(self, run: Active, journal: Journal) -> AsyncIterator[None]:
        """Report changes while the block runs."""
        reporting = asyncio.create_task(self._report(run, journal))
        try:
            yield
        finally:
            reporting.cancel()
            await asyncio.wait([reporting])

    async def flush(self, run: Active, journal: Journal) -> None:
        """Report all changes whose rows are known."""
        async with self._order:  # two flushes at once would report in another order
            await self._find_rows(run, journal)
            self._waiting = deque(change for change in list(self._waiting) if not self._is_reported(change))

    def ended(self, ref: JobRef | None, row: JournalRow | None) -> None:
        """Report the remaining changes of a job whose item has ended, and forget the job."""
        if ref is None:
            return
        if row is not None:
            self._rows[ref] = row
        self._waiting = deque(change for change in self._waiting if change.ref != ref or not self._is_reported(change))
        self._rows.pop(ref, None)
        self._changes.forget(ref)

    def _add(self, change: Change) -> None:
        self._waiting.append(change)
        self._happened.set()

    async def _report(self, run: Active, journal: Journal) -> None:
        while True:
            await self._happened.wait()
            self._happened.clear()
            with suppress(JournalError):  # it ends the run, which shows it
                await self.flush(run, journal)
            if self._waiting:
                self._happened.set()
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _find_rows(self, run: Active, journal: Journal) -> None:
        unnamed = {change.ref for change in self._waiting} - self._rows.keys()
        keys = {item.key: item.ref for item in run.active() if item.ref in unnamed} if unnamed else {}
        if keys:
            rows = await journal._entries.get_many(list(keys))
            self._rows |= {ref: rows[key] for key, ref in keys.items() if key in rows}

    def _is_reported(self, change: Change) -> bool:
        """Report a change whose row is known, and return whether it is."""
        row = self._rows.get(change.ref)
        if row is not None:
            self._on_change(evolve(change, number=row.number, key=row.item_key, prompt=row.prompt))
        return row is not None

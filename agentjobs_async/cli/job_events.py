"""What happens to a batch's jobs, as events for machines."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol

from attrs import frozen

from agentjobs_async import AgentJob, Event, JobCreated, JobPolled, JobRef, JournalError, PollFailed, WaitEnded
from agentjobs_async.batch import ActiveItem, Journal, JournalRow
from agentjobs_async.batch.journal import entries_of
from agentjobs_async.cli.documents import event
from agentjobs_async.cli.outcomes import described

__all__ = ["JobEvents"]

_AGAIN_SECONDS: Final = 0.1  # a create's row is named a commit later than its answer


class Active(Protocol):
    """A run that knows its items under way."""

    def active(self) -> Sequence[ActiveItem]:
        """Return the items under way."""
        ...


@frozen
class _Told:
    """An event that waits until its job's row is known."""

    name: str
    ref: JobRef
    status: str | None = None
    error: str | None = None


class JobEvents:
    """A hook that writes `created`, `status` and `trouble` of a batch's jobs, in the order in which they happened.

    A hook is told of jobs, and a line names the item: the row is looked up by the job, where a run has it under way.

    Args:
        write: Called with each document.
    """

    def __init__(self, write: Callable[[dict[str, Any]], object]) -> None:
        self._write = write
        self._waiting: deque[_Told] = deque()
        self._statuses: dict[JobRef, str] = {}
        self._failures: dict[JobRef, int] = {}
        self._rows: dict[JobRef, JournalRow] = {}
        self._happened = asyncio.Event()
        self._order = asyncio.Lock()

    def __call__(self, event: Event, /) -> None:
        """Keep what is to be written."""
        match event:
            case JobCreated(job):
                self._changed("created", job)
            case JobPolled(job):
                self._failures.pop(job.ref, None)
                if self._statuses.get(job.ref) != job.status:
                    self._changed("status", job)
            case PollFailed(ref, Exception() as error):
                self._failures[ref] = self._failures.get(ref, 0) + 1
                if self._failures[ref] == 2:  # noqa: PLR2004 - one failure alone is often over when it is read
                    self._add(_Told("trouble", ref, error=described(error)))
            case WaitEnded(ref):
                self._failures.pop(ref, None)

    @asynccontextmanager
    async def written(self, run: Active, journal: Journal) -> AsyncIterator[None]:
        """Write them while the block runs."""
        writing = asyncio.create_task(self._write_on(run, journal))
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.wait([writing])

    async def flush(self, run: Active, journal: Journal) -> None:
        """Write what waits, as far as its rows are known."""
        async with self._order:
            await self._learn(run, journal)
            later = [told for told in self._waiting if not self._told(told)]
            self._waiting = deque(later)

    def ended(self, ref: JobRef | None, row: JournalRow | None) -> None:
        """Write what still waits of a job whose item has ended, and forget it."""
        if ref is None:
            return
        if row is not None:
            self._rows[ref] = row
        self._waiting = deque(told for told in self._waiting if told.ref != ref or not self._told(told))
        for known in (self._rows, self._statuses, self._failures):
            known.pop(ref, None)

    def _changed(self, name: str, job: AgentJob) -> None:
        self._statuses[job.ref] = job.status
        self._add(_Told(name, job.ref, job.status))

    def _add(self, told: _Told) -> None:
        self._waiting.append(told)
        self._happened.set()

    async def _write_on(self, run: Active, journal: Journal) -> None:
        while True:
            await self._happened.wait()
            self._happened.clear()
            with suppress(JournalError):  # the run ends by it, and says so
                await self.flush(run, journal)
            if self._waiting:
                self._happened.set()
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _learn(self, run: Active, journal: Journal) -> None:
        unnamed = {told.ref for told in self._waiting} - self._rows.keys()
        keys = {item.key: item.ref for item in run.active() if item.ref in unnamed} if unnamed else {}
        if keys:
            rows = await entries_of(journal).get_many(list(keys))
            self._rows |= {ref: rows[key] for key, ref in keys.items() if key in rows}

    def _told(self, told: _Told) -> bool:
        """Write an event whose row is known, and tell whether it is."""
        row = self._rows.get(told.ref)
        if row is None:
            return False
        fields: dict[str, Any] = {"number": row.number, "key": row.key, "status": told.status}
        if told.name == "created":
            fields["prompt"] = row.prompt
        self._write(event(told.name, told.ref, **({"error": told.error} if told.name == "trouble" else fields)))
        return True

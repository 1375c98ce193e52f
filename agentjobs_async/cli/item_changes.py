"""The changes of a batch's jobs, each named by its item."""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import evolve

from agentjobs_async import Event, JobRef
from agentjobs_async.batch import ActiveItem, JournalRow
from agentjobs_async.cli.documents import Change
from agentjobs_async.cli.hooks import JobChanges

__all__ = ["ItemChanges"]


class Active(Protocol):
    """A run that knows its active items."""

    def active(self) -> Sequence[ActiveItem]:
        """Return the active items."""
        ...


class ItemChanges:
    """A hook that reports the changes of a batch's jobs, each as it happens.

    An event names the job, and a line names the item: the item under way that has this job. Right after the create only
    the job's label, which is the key of the item's row, says which one that is. A change of any other job is left out.

    Args:
        on_change: Called with each change.

    Attributes:
        run: The run that works on the items; `None` before it begins.
    """

    def __init__(self, on_change: Callable[[Change], object]) -> None:
        self.run: Active | None = None
        self._on_change = on_change
        self._changes = JobChanges(self._report)
        self._rows: dict[JobRef, JournalRow] = {}

    def __call__(self, event: Event, /) -> None:
        """Report a change."""
        self._changes(event)

    def forget(self, ref: JobRef) -> None:
        """Forget a job whose item has ended."""
        self._rows.pop(ref, None)
        self._changes.forget(ref)

    def _report(self, change: Change) -> None:
        row = self._rows.get(change.ref) or self._find(change)
        if row is not None:
            self._rows[change.ref] = row
            self._on_change(evolve(change, number=row.number, key=row.item_key, prompt=row.prompt))

    def _find(self, change: Change) -> JournalRow | None:
        label = None if change.job is None else change.job.label
        items = () if self.run is None else self.run.active()
        return next((item.row for item in items if item.ref == change.ref or item.key == label), None)

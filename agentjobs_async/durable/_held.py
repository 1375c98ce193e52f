"""Creates that are held back: the entry of each job says why, and so does one call of `on_change`."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from attrs import define, evolve

from agentjobs_async import AgentJobsError, JournalError
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._run.context import RunningItem
from agentjobs_async.batch._run.tasks import ItemTasks
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch.limits import rate_text
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._following import Following
from agentjobs_async.durable.entry import DurableEntry

_LOOK_SECONDS: Final = 2.0  # a shorter wait for a turn is none that anybody asks about


@define(eq=False)
class _Shown:
    """What was said of one create that is held back.

    Attributes:
        create: Which create it is: one of a later try under the same key has another answer to come.
        to_tell: The row with whose entry `on_change` is to be called, and the reason; `None` once that was done.
    """

    create: object
    to_tell: tuple[JournalRow, Exception] | None = None
    _recorded: tuple[type[Exception], str | None] | None = None
    _told: tuple[type[Exception], ...] = ()

    def is_recorded(self, reason: Exception, claim: str | None) -> bool:
        """Return whether the journal has this kind of reason, and no claim since has cleared it."""
        return self._recorded == (type(reason), claim)

    def record(self, row: JournalRow, reason: Exception, claim: str | None) -> None:
        """Store that the journal has a reason; it is to be told if it is the first one of its kind."""
        self._recorded = (type(reason), claim)
        self.to_tell = None if type(reason) in self._told else (row, reason)

    def tell(self) -> None:
        """Store that `on_change` is called with the reason."""
        if self.to_tell is not None:
            self._told = (*self._told, type(self.to_tell[1]))
            self.to_tell = None


class HeldJobs:
    """Finds out why creates are held back: the key is refused, a 429, an outage, a rate, the limits of all owners.

    Args:
        item_tasks: The creates, as items under way.
        creates: Knows what keeps a create from being sent that no gate knows of.
        rows: Records why.
        following: Calls `on_change`.
    """

    def __init__(self, item_tasks: ItemTasks, creates: Creates, rows: DurableRows, following: Following) -> None:
        self._item_tasks = item_tasks
        self._creates = creates
        self._rows = rows
        self._following = following
        self._shown: dict[str, _Shown] = {}
        """By the keys of creates under way."""

    def now(self) -> dict[str, Exception]:
        """Return why creates are held back, by the keys of their jobs; those that wait for their turn are left out."""
        return {item.key: reason for item, reason in self._held()}

    def unsent_by(self) -> Exception | None:
        """Return what keeps a create from being sent that no gate knows of; `None` without such a one."""
        return next(filter(None, (self._creates.held_by(item.key) for item in self._waiting())), None)

    def _held(self) -> Iterator[tuple[RunningItem, Exception]]:
        """Yield the items whose creates are held back, and why."""
        reasons: dict[str, Exception | None] = {}
        for item in self._waiting():
            project = item.row.project_id
            if project not in reasons:
                reasons[project] = self._reason_of(project)
            if (reason := self._creates.held_by(item.key) or reasons[project]) is not None:
                yield item, reason

    def explained(self, entry: DurableEntry, project_id: str | None) -> DurableEntry:
        """Return the entry of a job of a project with why it is held back, where the journal does not say that yet."""
        if entry.state is not State.PLANNED or entry.error is not None or project_id is None:
            return entry
        reason = self._reason_of(project_id)
        return entry if reason is None else evolve(entry, error=self._item_tasks.context.records.text(reason))

    async def look_on(self) -> None:
        """Look, until cancelled, for jobs that are held back, and show for each of them why."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(JournalError):  # it looks again
                await self._look()

    async def _look(self) -> None:
        kept = self._shown.items()
        self._shown = {key: shown for key, shown in kept if shown.create is self._creates.answer_to(key)}
        by_text: dict[str, dict[str, tuple[Exception, str | None]]] = {}
        for item, reason in self._held():
            shown = self._shown.setdefault(item.key, _Shown(self._creates.answer_to(item.key)))
            if not shown.is_recorded(reason, item.claim):
                text = self._item_tasks.context.records.text(reason)
                by_text.setdefault(text, {})[item.key] = (reason, item.claim)
        for text, found in by_text.items():
            for page in pages_of(found):
                for row in await self._rows.hold(page, text):
                    self._shown[row.key].record(row, *found[row.key])
                self._tell(page)
        self._tell(self._shown)

    def _tell(self, keys: Iterable[str]) -> None:
        """Call `on_change` for those of the jobs that it is to be called for; later where that can't be done yet."""
        for shown in map(self._shown.__getitem__, keys):
            if shown.to_tell is not None and self._following.show_held(*shown.to_tell):
                shown.tell()

    def _waiting(self) -> Iterator[RunningItem]:
        return (item for item in self._item_tasks.under_way() if item.state is State.PLANNED)

    def _reason_of(self, project_id: str) -> Exception | None:
        """Return why the creates of a project are held back.

        `None` where the next one may go within 2 s, or depends on one that is under way.
        """
        context = self._item_tasks.context
        reason = context.gates.paused_by({project_id})
        if reason is not None:
            return reason
        rate, due = context.limits.create_rate, context.gates.next_at(project_id)
        if rate is None or due is None or due <= asyncio.get_running_loop().time() + _LOOK_SECONDS:
            return None
        text = f"it waits for its turn: create_rate is {rate_text(rate)}"
        return AgentJobsError(text, public_message="The job waits for its turn.")

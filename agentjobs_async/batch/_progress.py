"""How far a run is: what is still to come, what holds its creates back, and when it ends."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from attrs import frozen

from agentjobs_async import AgentJobsError, RateLimitedError
from agentjobs_async.batch._estimates import Durations, End, end_of
from agentjobs_async.batch._run.context import RunContext, RunningItem
from agentjobs_async.batch._store.claims import NoRoomError, is_limit
from agentjobs_async.batch.items import Outcome
from agentjobs_async.batch.states import State
from agentjobs_async.batch.stats import BatchStats
from agentjobs_async.telemetry.metrics import ItemGauges

SLOTS_KEPT: Final = (
    "unknown items keep all slots, since their agents may be at work; settle them to free the slots in the next run"
)
"""The message where nothing else holds creates back."""
_WAITING: Final = (State.PLANNED, State.UNKNOWN)  # an unknown item waits to be repeated


@frozen
class ToCome:
    """What a run has not begun.

    Attributes:
        planned: How many rows are planned, by project.
        others: How many items end without a new row: jobs and unknown creates of earlier runs, and results to be given.
        most: How many items without a job may begin; infinite for any number.
        is_all: Whether these are all, since the source is read.
    """

    planned: Mapping[str, int]
    others: int
    most: float
    is_all: bool

    @property
    def count(self) -> int:
        """How many planned items are going to begin."""
        return int(min(sum(self.planned.values()), self.most))


@frozen
class Progress:
    """A run at one moment.

    Attributes:
        context: What its items have in common.
        items: Those under way.
        outcomes: How many ended in each way.
        to_come: What it has not begun; `None` where a queue hands out its items.
    """

    context: RunContext
    items: Collection[RunningItem]
    outcomes: Mapping[Outcome, int]
    to_come: ToCome | None

    def stats(self, durations: Durations, *, stopped: bool, may_send: bool) -> BatchStats:
        """Return a snapshot: of a run that may begin more items as long as it has not `stopped`, and `may_send`."""
        counts, paused_by = self._counts(), self._paused_by()
        next_create, total = self._next_create(), self._total()
        end = None
        if total is not None and not is_held(paused_by):
            end = self._end(durations, next_create or 0.0, may_send=may_send and not stopped)
        return BatchStats(
            waiting=counts[State.PLANNED],
            active=len(self.items) - counts[State.PLANNED],
            next_create=next_create,
            outcomes=MappingProxyType(dict(self.outcomes)),
            stopped=stopped,
            paused_by=paused_by,
            planned=None if self.to_come is None else counts[State.PLANNED] + self.to_come.count,
            total=total,
            ends_in=None if end is None else end.seconds,
            decided_by=None if end is None else end.decided_by,
            usual=durations.usual,
        )

    def gauges(self) -> ItemGauges:
        """Return what gauges show. It may be asked in any thread."""
        counts, begun = self._counts(), self._begun()
        outcomes = {str(name): count for name, count in dict(self.outcomes).items()}
        to_come = 0 if self.to_come is None else self.to_come.count
        to_begin = Counter[str]() if self.to_come is None else Counter(self.to_come.planned)
        held = self._held([*begun, *to_begin])
        return ItemGauges(
            planned=counts[State.PLANNED] + to_come,
            unknown=counts[State.UNKNOWN] + self.outcomes.get(Outcome.UNKNOWN, 0),
            held=sum(begun[project] for project in held) + min(sum(to_begin[project] for project in held), to_come),
            states={
                "waiting": counts[State.PLANNED],
                "active": len(self.items) - counts[State.PLANNED],
                **outcomes,
            },
        )

    def _counts(self) -> Counter[State]:
        return Counter(item.state for item in self.items)

    def _begun(self) -> Counter[str]:
        """Return how many items of each project wait for their create."""
        return Counter(item.slot.project for item in self.items if item.state in _WAITING)

    def _held(self, projects: Iterable[str]) -> set[str]:
        """Return those projects whose creates are held back, and not by a limit."""
        reasons = {project: self.context.gates.paused_by([project]) for project in set(projects)}
        return {project for project, reason in reasons.items() if reason is not None and not is_limit(reason)}

    def _total(self) -> int | None:
        """Return how many items the run has in all; `None` while that is not known."""
        if self.to_come is None or not self.to_come.is_all:
            return None
        return len(self.items) + sum(self.outcomes.values()) + self.to_come.count + self.to_come.others

    def _still_to_send(self) -> Counter[str]:
        """Return how many items of each project wait for their create, or have not begun."""
        waiting = self._begun()
        if self.to_come is not None and self.to_come.most > 0:
            waiting.update(self.to_come.planned)
        return +waiting

    def _end(self, durations: Durations, next_create: float, *, may_send: bool) -> End | None:
        waiting = self._still_to_send() if may_send else Counter[str]()
        rate, most = self.context.limits.create_rate, 0 if self.to_come is None else self.to_come.most
        queue = waiting.total() if rate is None or rate.scope == "all" else max(waiting.values(), default=0)
        begun = sum(item.state in _WAITING for item in self.items) if may_send else 0
        now = asyncio.get_running_loop().time()
        return end_of(
            to_create=int(min(waiting.total(), begun + most)),
            queue=queue,
            # Those whose jobs have ended are left out: their ends are on their way to the journal.
            ages=[now - item.since for item in self.items if item.state is State.SENDING or item.is_waiting],
            limits=self.context.limits,
            usual=durations.usual,
            next_create=next_create,
        )

    def _next_create(self) -> float | None:
        projects: Collection[str | None] = self._still_to_send() or [self.context.session.project_id]
        known = [at for project in projects if (at := self._next_create_of(project)) is not None]
        return max(min(known) - asyncio.get_running_loop().time(), 0.0) if known else None

    def _next_create_of(self, project: str | None) -> float | None:
        at = self.context.gates.next_at(project)
        if at is None or self.context.slots.free(project) > 0:
            return at
        kept = self._kept_until(project)
        if kept is None:  # a slot is free once a job ends; what a rate or a pause holds back is known to take longer
            return at if at > asyncio.get_running_loop().time() else None
        return max(at, kept)

    def _kept_until(self, project: str | None) -> float | None:
        """Return when an unknown item's slot becomes free for a project; `None` while another one may be before."""
        if any(item.slot.taken for item in self.items):
            return None
        return self.context.slots.next_free_at(project)

    def _paused_by(self) -> Exception | None:
        gates, projects = self.context.gates, self._still_to_send()
        reason = gates.paused_by({*projects, *gates.refused()})
        if reason is not None and not is_limit(reason):
            return reason
        if projects and all(self._kept_until(project) is not None for project in projects):
            return AgentJobsError(SLOTS_KEPT)
        ready = [project for project in projects if gates.may_go(project)]
        if ready and all(self.context.slots.free(project) <= 0 for project in ready):
            taken, kept = sum(item.slot.taken for item in self.items), self.context.slots.kept
            return NoRoomError("max_active", f"max_active is used up by this run: {taken} active, {kept} unknown")
        return None if reason is None or is_rate(reason) else reason


def is_rate(error: Exception) -> bool:
    """Return whether an error says that the rate is used up: that is no news, since `next_create` says for how long."""
    return isinstance(error, NoRoomError) and error.cause == "create_rate"


def is_held(reason: Exception | None) -> bool:
    """Return whether creates are held back by something of which nobody knows the end."""
    return reason is not None and not isinstance(reason, RateLimitedError | NoRoomError)

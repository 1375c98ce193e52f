"""One followed job: what is kept of it while it is at work."""

import asyncio
from collections.abc import Callable
from math import inf

from attrs import define

from agentjobs_async import AgentJob, JobRef
from agentjobs_async.batch import State
from agentjobs_async.batch.items import context_of
from agentjobs_async.durable.entry import DurableEntry

__all__ = ["Follow"]


@define(eq=False)
class Follow:
    """One followed job. There may be many thousands, so that it keeps no prompt, and the context as text.

    Attributes:
        context: The context as JSON; `None` without one.
        on_change: Called when `job` has changed.
        on_end: Called with the wait when it is over.
        polls_before: How often the job was polled by earlier processes.
        job: The job as it was seen last; `None` before.
        told_at: Loop time of the last call of `on_change`.
        telling: The task that calls `on_change`; `None` while there is nothing new.
        calling: Whether `on_change` is under way in that task, which otherwise waits for the gap to pass.
    """

    key: str
    ref: JobRef
    context: str | None
    polls_before: int
    on_change: Callable[["Follow"], None]
    on_end: Callable[["Follow", asyncio.Future[AgentJob]], None]
    watch: asyncio.Future[AgentJob] | None = None
    job: AgentJob | None = None
    told_at: float = -inf
    telling: asyncio.Task[None] | None = None
    calling: bool = False

    @property
    def polls(self) -> int:
        """How often its job was polled, by earlier processes and this one."""
        return self.polls_before + getattr(self.watch, "polls", 0)

    @property
    def seen(self) -> float | None:
        """Loop time at which a poll of this process last showed its job; `None` before, and once the wait is over."""
        return getattr(self.watch, "seen", None)

    def on_job(self, job: AgentJob) -> None:
        """Record the newest state, and have `on_change` called with it."""
        self.job = job
        self.on_change(self)

    def on_done(self, watch: asyncio.Future[AgentJob]) -> None:
        """Report the end of the wait."""
        self.on_end(self, watch)

    def entry(self, job: AgentJob | None) -> DurableEntry:
        """Return the entry of a job that is at work."""
        return DurableEntry(self.key, State.CREATED, self.ref, job, context_of(self.context) or {})

"""One followed job: a wait that reports to what follows it."""

import asyncio
from math import inf
from typing import Protocol

from agentjobs_async import AgentJob, JobRef
from agentjobs_async._polling.watch import Leave, Watch
from agentjobs_async.batch import State
from agentjobs_async.batch.items import context_of
from agentjobs_async.durable.entry import DurableEntry

__all__ = ["Follow", "Follower"]


class Follower(Protocol):
    """What the waits report to."""

    def changed(self, follow: "Follow", job: AgentJob) -> None:
        """Act on the state that a poll has shown."""

    def ended(self, follow: "Follow", result: AgentJob | BaseException) -> None:
        """Act on the end of a wait."""


class Follow(Watch):
    """The wait for one followed job. It never completes as a future: its end goes to the follower.

    There may be many thousands. So it is a watch itself, keeps no prompt, and the context as text.

    Attributes:
        key: The key of its row.
        ref: The job.
        context: The context as JSON; `None` without one.
        earlier_polls: How often the job was polled by earlier waits and processes.
        shown: The state with which `on_change` was called last; `None` before.
        shown_at: Loop time of that call.
        showing: The task that calls `on_change`; `None` while there is nothing new.
        calling: Whether `on_change` is under way in that task, which otherwise waits for the gap to pass.
    """

    __slots__ = ("_follower", "calling", "context", "earlier_polls", "key", "ref", "showing", "shown", "shown_at")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        leave: Leave,
        follower: Follower,
        key: str,
        ref: JobRef,
        context: str | None,
        earlier_polls: int,
    ) -> None:
        super().__init__(loop, None, leave)
        self._follower = follower
        self.key = key
        self.ref = ref
        self.context = context
        self.earlier_polls = earlier_polls
        self.shown: AgentJob | None = None
        self.shown_at = -inf
        self.showing: asyncio.Task[None] | None = None
        self.calling = False

    @property
    def polls(self) -> int:
        """How often the job was polled, by earlier waits and this one."""
        return self.earlier_polls + super().polls

    @property
    def job(self) -> AgentJob | None:
        """The job as it was seen last; `None` before, and once the wait is over."""
        return None if self.tracked is None else self.tracked.job

    def on_job(self, job: AgentJob) -> None:
        """Report a state."""
        self._follower.changed(self, job)

    def on_end(self, result: AgentJob | BaseException) -> None:
        """Report the end."""
        self._follower.ended(self, result)

    def entry(self, job: AgentJob | None) -> DurableEntry:
        """Return the entry of a job that is at work."""
        return DurableEntry(self.key, State.ACTIVE, self.ref, job, context_of(self.context) or {})

"""Many waits on one event loop: one poll stream for each job, one budget for all."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from agentjobs_async._binding import Binding
from agentjobs_async._checks import checked_instance, checked_timeout
from agentjobs_async._scheduler import Scheduler
from agentjobs_async._scope import let_leave
from agentjobs_async.completion import AsCompleted, Target, WaitResult
from agentjobs_async.counters import TrackerStats
from agentjobs_async.errors import SessionClosedError
from agentjobs_async.models import AgentJob, JobRef
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry import Contained, Hook, Hooks
from agentjobs_async.waiting import GetJob, OnUpdate, Read, checked_policy, job_or_ref, reader
from agentjobs_async.watching import Updates, Watch, WatchWithUpdates

__all__ = ["JobTracker", "Tracker"]


class Tracker:
    """The faces of one scheduler. `JobTracker` and the session give them their names and documentation."""

    def __init__(
        self,
        read: Read,
        target: Target,
        bound: Callable[[], asyncio.AbstractEventLoop],
        policy: PollPolicy,
        budget: PollBudget,
        hooks: Hooks,
    ) -> None:
        self._read = read
        self._target = target
        self._bound = bound
        self._policy = policy
        self._budget = budget
        self._hooks = hooks
        self._scheduler: Scheduler | None = None

    def enter(self) -> Scheduler:
        """Give the scheduler, made in the running loop at first.

        Raises:
            SessionClosedError: Closed, another loop, a forked child.
        """
        loop = self._bound()
        if self._scheduler is None:
            self._scheduler = Scheduler(loop, self._read, self._policy, self._budget, self._hooks)
        return self._scheduler

    def watch(self, job: object, timeout: float | None, on_update: OnUpdate | None = None) -> Watch:
        """Give a future of the end."""
        target = self._target(job)
        checked_timeout(timeout)
        update = None if on_update is None else Contained("on_update", on_update)
        scheduler = self.enter()
        watch = Watch(scheduler, timeout) if update is None else WatchWithUpdates(scheduler, timeout, update)
        scheduler.attach(watch, target)
        return watch

    def as_completed(self, jobs: Iterable[object] | AsyncIterable[object], timeout: float | None) -> AsCompleted:
        """Give the results as they come."""
        return AsCompleted(self.enter, jobs, checked_timeout(timeout), self._target)

    def updates(self, job: object, timeout: float | None) -> Updates:
        """Give the changes of one job."""
        return Updates(self.enter, self._target(job), checked_timeout(timeout))

    def notify(self, job: object) -> None:
        """Poll soon."""
        target = self._target(job)
        self.enter().notify(target.ref if isinstance(target, AgentJob) else target)

    def stats(self) -> TrackerStats:
        """Give a snapshot."""
        return self.enter().stats()

    async def aclose(self, error: SessionClosedError) -> None:
        """End all waits with `error`, and let the polls under way leave."""
        if self._scheduler is None:
            return
        tasks = self._scheduler.close(error)
        await let_leave(lambda: not all(task.done() for task in tasks))


class JobTracker:
    """Waits for many jobs over any get-job callable: one poll stream for each job, however many wait for it.

    Use it as `async with`, or call `aclose()`. Constructing needs no running loop; the first call binds to its loop.

    Args:
        get_job: An async callable that takes a `JobRef` and gives an `AgentJob` or the service's document as a mapping.
        policy: When to ask again, and what to put up with.
        budget: What all polls may use together.
        hooks: Called with each event.

    Raises:
        InvalidInputError: An argument makes no sense.
    """

    def __init__(
        self,
        get_job: GetJob,
        *,
        policy: PollPolicy | None = None,
        budget: PollBudget | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._binding = Binding("tracker")
        self._tracker = Tracker(
            reader(get_job),
            job_or_ref,
            self._binding.enter,
            checked_policy(policy),
            checked_instance("budget", budget, PollBudget) or PollBudget(),
            Hooks(hooks),
        )

    async def wait_for_job(
        self,
        job: AgentJob | JobRef,
        *,
        timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; the deadline also paces the last poll
        on_update: OnUpdate | None = None,
    ) -> AgentJob:
        """Give the job once it is completed, archived or failed; as the free `wait_for_job` does, with its errors.

        Raises:
            SessionClosedError: The tracker is closed, or was meanwhile.
        """
        return await self._tracker.watch(job, timeout, on_update)

    def watch(
        self,
        job: AgentJob | JobRef,
        *,
        timeout: float | None = 1800.0,
    ) -> asyncio.Future[AgentJob]:
        """Give a future of what `wait_for_job` would give or raise, the lightest handle. Cancelling it ends the wait.

        Raises:
            InvalidInputError: An argument makes no sense.
            SessionClosedError: The tracker is closed, or this is not its event loop.
        """
        return self._tracker.watch(job, timeout)

    def as_completed(
        self,
        jobs: Iterable[AgentJob | JobRef] | AsyncIterable[AgentJob | JobRef],
        *,
        timeout: float | None = 1800.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[WaitResult]]:
        """Give an async context manager over the results, in the order in which the jobs end; failures are values.

        Args:
            jobs: A list is taken at once; any other iterable, an async one without end too, at most 1,000 ahead of
                the results that were taken. What it raises itself comes out of the iteration. A job given twice gives
                two results.
            timeout: Seconds for each job, from when it is taken; `None` for ever.

        Raises:
            InvalidInputError: An argument makes no sense; a list is checked at once, any other iterable as it is read.
            SessionClosedError: The tracker is closed, or this is not its event loop.
        """
        return self._tracker.as_completed(jobs, timeout)

    def updates(
        self, job: AgentJob | JobRef, *, timeout: float | None = 1800.0
    ) -> AbstractAsyncContextManager[AsyncIterator[AgentJob]]:
        """Give an async context manager over the job's state now, and each change until its end.

        A slow reader gets the newest state. The wait's error comes out of the iteration.

        Raises:
            InvalidInputError: An argument makes no sense.
            SessionClosedError: The tracker is closed, or this is not its event loop.
        """
        return self._tracker.updates(job, timeout)

    def notify(self, job: AgentJob | JobRef) -> None:
        """Say that something happened to the job: it is polled soon, once, however often this is called.

        Nothing happens for a job that nobody waits for.

        Raises:
            InvalidInputError: An argument makes no sense.
            SessionClosedError: The tracker is closed, or this is not its event loop.
        """
        self._tracker.notify(job)

    def stats(self) -> TrackerStats:
        """Give a snapshot of what the tracker is doing.

        Raises:
            SessionClosedError: The tracker is closed, or this is not its event loop.
        """
        return self._tracker.stats()

    async def aclose(self) -> None:
        """End all waits with `SessionClosedError`. Idempotent; the jobs themselves go on remotely.

        Raises:
            SessionClosedError: The tracker is bound to another loop or to the process that forked this one.
        """
        if self._binding.close():
            await self._tracker.aclose(SessionClosedError("the tracker was closed meanwhile"))

    async def __aenter__(self) -> Self:
        self._tracker.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

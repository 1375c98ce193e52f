"""The ways to wait, written once for tracker and session: generic over what each accepts as a job."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from attrs import evolve

from agentjobs_async._deferred import deferred
from agentjobs_async._loop.cancel_scope import CancelScope, wait_until_left
from agentjobs_async._loop.loop_binding import LoopBinding
from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async._polling.reading import OnUpdate, Reader, job_or_raise, job_or_ref, label_of, ref_of, with_ref
from agentjobs_async._polling.scheduler import Scheduler
from agentjobs_async._polling.stats import TrackerStats
from agentjobs_async._polling.tracked import Watch, WatchWithUpdates
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async._validation import checked_instance, checked_seconds, checked_timeout
from agentjobs_async.errors import SessionClosedError
from agentjobs_async.models import AgentJob, JobRef, Seen
from agentjobs_async.policy import DEFAULT_WAIT, PollBudget, PollPolicy, checked_policy, learning_part
from agentjobs_async.telemetry.no_hooks import Hooks
from agentjobs_async.telemetry.observers import GuardedCallback, logger

if TYPE_CHECKING:  # loaded when used: an import costs all, and few use them all
    from agentjobs_async._polling.as_completed import WaitResult
    from agentjobs_async.learning.estimate import Estimate
    from agentjobs_async.learning.history import History
    from agentjobs_async.learning.strategy import Histories
else:
    WaitResult = deferred("agentjobs_async._polling.as_completed", "WaitResult")
    Estimate = deferred("agentjobs_async.learning.estimate", "Estimate")
    History = deferred("agentjobs_async.learning.history", "History")
    Histories = deferred("agentjobs_async.learning.strategy", "Histories")

_RECORDING_SECONDS: Final = 10.0  # beyond the grace: a journal that is there records within a second

JobLike = TypeVar("JobLike")
"""What a caller may pass as a job."""


class Waits(Generic[JobLike]):
    """Waits for jobs on one event loop: one series of polls for each job, however many callers wait for it.

    `JobTracker` and `AgentJobsSession` derive from it. A job that has ended is forgotten; a later wait reads it again.

    Args:
        what: The name of the subclass in error messages.
    """

    def __init__(
        self, what: str, reader: Reader, policy: PollPolicy | None, budget: PollBudget | None, hooks: Hooks
    ) -> None:
        self._binding = LoopBinding(what)
        self._shutdown: Shutdown[JobRef] = Shutdown()
        self._reader = reader
        self._policy = checked_policy(policy)
        self._budget = checked_instance("budget", budget, PollBudget) or PollBudget()
        self._slots = asyncio.Semaphore(self._budget.in_flight)
        self._hooks = hooks
        self._limits = PollLimits(self._budget.per_second)
        self._lazy_scheduler: Scheduler | None = None

    async def wait_for_job(
        self,
        job: JobLike,
        *,
        timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; the deadline also paces the last poll
        on_update: OnUpdate | None = None,
    ) -> AgentJob:
        """Return the job once it is completed, archived or failed. `failed` is a result, not an exception.

        Cancelling the wait returns at once; the job itself continues remotely.

        Args:
            job: An `AgentJob`, a `JobRef`, or on a session a bare id of its default project. An `AgentJob` that has
                ended is returned without a poll.
            timeout: Seconds above 0; `None` waits for ever.
            on_update: A plain function, called with the job when it is first seen and at each change, the last one
                included, in the context of this call. What changes in `raw` alone is no change. Errors that it raises
                do not end the wait; the first one is logged.

        Raises:
            InvalidInputError: An argument is invalid, before any poll; `policy.wait` returned an invalid delay; or
                your own `get_job` returned neither an `AgentJob` nor a mapping, or a job of another ref.
            WaitTimeoutError: `timeout` seconds have passed.
            ProtocolError: Responses were unusable: `policy.max_bad_answers` in a row before a poll of the waits under
                way had shown the job, or for `policy.answer_grace` seconds after that.
            NotFoundError: 410, or a 404 for longer than `policy.not_found_grace` and `policy.answer_grace` allow.
            AuthError, RejectedError, ServerError: The server refused the read: at once before a poll of the waits under
                way had shown the job, or for `policy.answer_grace` seconds after that.
            SessionClosedError: Closed before or during the wait, or bound to another event loop.
            Exception: What the caller's own `get_job` raised, unchanged, when `policy.retry` does not accept it.
        """
        return await self.watch(job, timeout=timeout, on_update=on_update)

    def watch(
        self, job: JobLike, *, timeout: float | None = 1800.0, on_update: OnUpdate | None = None
    ) -> asyncio.Future[AgentJob]:
        """Return a future of what `wait_for_job` would return or raise: the lightest handle. Cancel it to stop waiting.

        `on_update` is as in `wait_for_job`.

        Raises:
            InvalidInputError: An argument is invalid.
            SessionClosedError: Closed, or bound to another event loop.
        """
        target = self._target(job)
        checked_timeout(timeout)
        update = None if on_update is None else GuardedCallback("on_update", on_update)
        try:
            scheduler = self._scheduler()
        except SessionClosedError as error:  # the job may have been created a moment ago, by `run_job`
            raise with_ref(error, ref_of(target)) from None
        watch = Watch(scheduler, timeout) if update is None else WatchWithUpdates(scheduler, timeout, update)
        scheduler.attach(watch, target)
        return watch

    def as_completed(
        self, jobs: Iterable[JobLike] | AsyncIterable[JobLike], *, timeout: float | None = 1800.0
    ) -> "AbstractAsyncContextManager[AsyncIterator[WaitResult]]":
        """Return an async context manager over the results, in the order in which the jobs end; failures are values.

        Args:
            jobs: An iterable or async iterable. One of known length, such as a list, is read at once. Any other may be
                endless, and is read at most 1,000 jobs ahead of the results that were read. What it raises comes out of
                the iteration. A job that is given twice has two results.
            timeout: Seconds for each job, from when it is read; above 0; `None` waits for ever.

        Raises:
            InvalidInputError: An argument is invalid; a list is checked at once, any other iterable as it is read.
            SessionClosedError: Closed, or bound to another event loop.
        """
        from agentjobs_async._polling.as_completed import AsCompleted  # noqa: PLC0415 - loaded when used

        return AsCompleted(self, jobs, checked_timeout(timeout))

    def updates(
        self, job: JobLike, *, timeout: float | None = 1800.0
    ) -> AbstractAsyncContextManager[AsyncIterator[AgentJob]]:
        """Return an async context manager over the job's state now, and then each change until its end.

        A slow reader gets the newest state, and no backlog. `anext` may be cancelled: no change is lost.

        The iteration raises what `wait_for_job` raises. Its `WaitTimeoutError` is a `TimeoutError`, as that of an
        `asyncio.timeout` around the iteration is: catch the first by its own name.

        Args:
            job: As of `wait_for_job`.
            timeout: Seconds from entering the block, above 0; `None` waits for ever.

        Raises:
            InvalidInputError: An argument is invalid.
            SessionClosedError: Closed, or bound to another event loop.
        """
        from agentjobs_async._polling.updates import Updates  # noqa: PLC0415 - loaded when used

        return Updates(self, self._target(job), checked_timeout(timeout))

    def notify(self, job: JobLike) -> bool:
        """Poll the job once, soon, however often this is called: for a webhook that reports a change.

        Returns:
            Whether somebody waits for the job here. If not, the call has no effect: the job has ended, or another
            process waits for it.

        Raises:
            InvalidInputError: An argument is invalid.
            SessionClosedError: Closed, or bound to another event loop.
        """
        ref = ref_of(self._target(job))
        return self._scheduler().notify(ref)

    def limit_polls(self, per_second: float | None) -> None:
        """Start at most `per_second` polls per second from now on; `None` for the limit of the budget alone.

        Raises:
            InvalidInputError: `per_second` is not a finite number above 0.
        """
        self._limits.limit(per_second)
        if self._lazy_scheduler is not None:
            self._lazy_scheduler.wake()

    def stats(self) -> TrackerStats:
        """Return how many jobs are watched and polled at this moment.

        It looks at each watched job, and binds to no event loop.

        Raises:
            SessionClosedError: Closed, or bound to another event loop.
        """
        self._binding.check()
        return TrackerStats() if self._lazy_scheduler is None else self._lazy_scheduler.stats()

    def _gauges(self) -> TrackerStats | None:
        """Return what gauges show, in whatever thread an exporter asks; `None` once nothing is under way for good."""
        if self._binding.over:
            return None
        return TrackerStats() if self._lazy_scheduler is None else self._lazy_scheduler.stats()

    async def estimate(self, job: JobLike) -> "Estimate | None":
        """Return how long a job has left, as the durations of earlier jobs of its project and model suggest.

        Its age counts from `created_at`, by the local clock, or from the start of a wait for it if that is longer. A
        job that is neither waited for nor given as an `AgentJob` is read once.

        Returns:
            Seconds from now; 0.0 for a job that has ended. `None` if the waits do not learn, fewer than 20 durations
            are known, nothing says how old the job is, or it is older than all jobs before it.

        Raises:
            InvalidInputError: `job` is invalid.
            SessionClosedError: Closed, or bound to another event loop.
            Exception: As by the session's `get_job`, when the job has to be read.
        """
        target = self._target(job)
        found, age = self._scheduler().known(ref_of(target)) or (None, None)
        if learning_part(self._policy.wait) is None:
            return None  # nothing is read in vain
        if found is None:
            found = target if isinstance(target, AgentJob) else await self._read_once(target)
        return self._estimated(found, age)

    def _time_left(self, ref: JobRef) -> "Estimate | None":
        """Return what `estimate` does, of a job that is waited for: for what can't await. `None` for any other job."""
        known = None if self._lazy_scheduler is None else self._lazy_scheduler.known(ref)
        job, age = known or (None, None)
        return None if job is None else self._estimated(job, age)

    def _estimated(self, job: AgentJob, age: float | None) -> "Estimate | None":
        """Return how long a job has left that is `age` seconds old; `None` for an age that only the job can tell."""
        from agentjobs_async.learning.estimate import estimate_job  # noqa: PLC0415 - loaded when used

        learning = learning_part(self._policy.wait)
        if learning is None:
            return None
        return estimate_job(learning.history_of(job.project_id, job.model), job, age)

    def learn_from(self, history: "History | Histories") -> bool:
        """Wait as `wait_learned(history)` does from now on, if the policy's wait is the default; return whether it is.

        Raises:
            InvalidInputError: `history` is invalid.
        """
        from agentjobs_async.learning.strategy import wait_learned  # noqa: PLC0415 - loaded when used

        wait = wait_learned(history)
        if self._policy.wait is not DEFAULT_WAIT:
            return False
        self._policy = evolve(self._policy, wait=wait)
        if self._lazy_scheduler is not None:
            self._lazy_scheduler.use(self._policy)
        return True

    async def drain(self, grace: float = 10.0) -> tuple[JobRef, ...]:
        """Shut down: wait for the answers to creates under way and for their records, end all else, and close.

        1. New creates and waits raise a `SessionClosedError`. All that waits ends with it at once: waits, reads, what
           comes from `as_completed`, creates that a Retry-After holds back, batches, workers and durable jobs. The jobs
           continue, and can be waited for again by their tokens.
        2. Creates under way get `grace` seconds for their answers. Then the session closes.
        3. The answers are recorded: in the journals of batches, workers and durable jobs, and in blocks of `recording`.
           This call waits for that, up to 10 s beyond the grace. Each job that is not recorded by then is logged with
           its token.

        Idempotent; called twice, the shorter grace applies. `aclose` meanwhile closes at once. If this call is
        cancelled, nothing new is begun, and creates under way continue until `aclose`.

        Args:
            grace: Seconds, at least 0, for which creates under way may wait for their answers. Then they end as by
                `aclose`: as unknown if their first byte has left.

        Returns:
            The jobs that are not recorded. If there are any, end the process with an exit code that says so, such as 4.

        Raises:
            InvalidInputError: `grace` is not a finite number from 0 on.
            SessionClosedError: Bound to another event loop or to the process that forked this one.
        """
        checked_seconds("grace", grace, zero=True)
        clock = asyncio.get_running_loop().time
        until = clock() + grace + _RECORDING_SECONDS
        if self._binding.drain():
            error = self._binding.drained_error()
            self._shutdown.waits.interrupt(error)
            await self._end_waits(error)
            await self._shutdown.creates.wait_until_empty(grace)
        await self.aclose()
        left = await self._shutdown.recorded(max(until - clock(), 0.0))
        for ref in left:
            logger.critical(
                "the draining ended before the job %s was recorded: record it by this token", ref.to_token()
            )
        return left

    async def aclose(self) -> None:
        """End all waits. Each subclass says what else it closes."""
        raise NotImplementedError

    def _target(self, job: object) -> AgentJob | JobRef:
        """Return what a caller passed as a job, checked; the session accepts ids, too."""
        return job_or_ref(job)

    def _enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, bound to it; the session opens its connections, too.

        Raises:
            SessionClosedError: Closed, or bound to another event loop or process.
        """
        return self._binding.enter()

    def _scheduler(self) -> Scheduler:
        """Return the scheduler; the first call makes it, in the running loop. It raises what `_enter` raises."""
        loop = self._enter()
        if self._lazy_scheduler is None:
            self._lazy_scheduler = Scheduler(loop, self._reader, self._policy, self._budget, self._hooks, self._limits)
        return self._lazy_scheduler

    async def __aenter__(self) -> Self:
        self._scheduler()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.aclose()

    async def _read_once(self, target: AgentJob | JobRef) -> AgentJob:
        ref = ref_of(target)
        return job_or_raise(await self._answer_once(ref, label_of(target)), ref)

    async def _answer_once(self, ref: JobRef, label: str | None) -> AgentJob | Exception:
        answer: Answer | None = None
        with CancelScope(None, self._shutdown.waits) as scope:
            async with self._slots:
                answer = await self._reader.read(ref, label)
        if isinstance(answer, Seen):
            return answer.job
        return answer or scope.reason or SessionClosedError("the session was closed meanwhile")

    async def _end_waits(self, error: SessionClosedError) -> None:
        """End all waits with `error`, and wait until the cancelled polls have ended."""
        if self._lazy_scheduler is not None:
            tasks = await self._lazy_scheduler.close(error)
            await wait_until_left(lambda: not all(task.done() for task in tasks))
